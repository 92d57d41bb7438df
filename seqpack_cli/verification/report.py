"""The report of verify: findings, coverage, and the largest errors with their limits.

Of pairs there is a report for each side and one of both together; of a folder of splits, one for
each split and one of all.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seqpack_cli.verification.findings import ErrorSize, Finding
from seqpack_cli.verification.user_models.model_report import ModelReport


@dataclass
class LevelReport:
    """What one level covered."""

    level: str
    num_batches: int = 0
    num_tokens: int = 0
    num_cut_batches: int = 0  # of which only a window of time steps was computed
    num_column_values: int = 0  # roundtrip: compared with the token store's
    num_labels: int = 0  # roundtrip: tokens whose labels were compared with the token store
    num_label_targets: int = 0  # those of them that are targets
    num_sampled_batches: int = 0  # roundtrip: also checked with torch's row-by-row functions
    seconds: float = 0.0
    errors: dict[str, ErrorSize] = field(default_factory=dict)

    def note_error(self, quantity: str, error: float, limit: float) -> None:
        """Keep the error of a quantity that came nearest to its limit."""
        new = ErrorSize(quantity, error, limit)
        if quantity not in self.errors or new.share > self.errors[quantity].share:
            self.errors[quantity] = new

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the batches divided by the time they took."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    @property
    def worst(self) -> ErrorSize | None:
        """The quantity that came nearest to its limit."""
        return max(self.errors.values(), key=lambda size: size.share, default=None)


@dataclass(frozen=True)
class LayoutSpeed:
    """The speed of one layout on the device."""

    layout: str
    forward: float  # tokens per second, padding not counted
    training: float  # the same for forward and backward


@dataclass(frozen=True)
class Control:
    """One fault that the self-test made in memory, and whether verify found it."""

    name: str
    level: str  # the level that must find it
    caught: bool | None  # None where this shard cannot have such a fault
    found: str  # the finding


@dataclass(frozen=True)
class PlanReport:
    """Whether the batches were compared with a plan made again from the token store."""

    compared: bool
    plan_version: int  # of the shards
    why_not: str | None = None


@dataclass
class Report:
    """The result of a verify run."""

    shards: str
    layout: str
    device: str
    device_name: str
    dtype: str
    cell: str | None  # of the test model; None if the user's own is checked
    num_layers: int
    bidirectional: bool
    hidden_size: int
    seed: int
    num_shards: int
    num_batches: int
    num_sequences: int
    num_tokens: int
    is_gate: bool  # whether errors above their limits are findings; not for 16-bit
    columns: list[str]  # of the shards
    side: str | None  # of pairs: "encoder" or "decoder"
    plan: PlanReport
    levels: list[LevelReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: ModelReport | None = None  # of the user's own
    layout_speeds: list[LayoutSpeed] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        document = {"passed": self.passed, **asdict(self)}
        if self.model is not None:  # its findings are among those of the report
            shown = self.model.to_json()
            document["model"] = {
                name: shown[name] for name in shown if name not in ("passed", "findings")
            }
        for level, report in zip(document["levels"], self.levels, strict=True):
            level["tokens_per_second"] = round(report.tokens_per_second)
            for size in level["errors"].values():  # JSON has no infinity
                size["error"] = size["error"] if math.isfinite(size["error"]) else "inf"
        return document


@dataclass(frozen=True)
class DocumentsReport:
    """Whether the documents of all splits, or of both sides of pairs, were compared."""

    compared: bool = False
    num_documents: int = 0  # that have a sequence in a split; of pairs, those compared
    why_not: str | None = None


@dataclass
class PairsReport:
    """The result of a verify run over shards of pairs."""

    shards: str
    sides: dict[str, Report] = field(default_factory=dict)  # of the encoder and of the decoder
    documents: DocumentsReport = field(default_factory=DocumentsReport)
    own_findings: list[Finding] = field(default_factory=list)  # of both sides together
    controls: list[Control] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """All findings: those of a side, with its name behind the shard's, and those of both."""
        of_sides = [report.findings for report in self.sides.values()]
        shared = set.intersection(*map(set, of_sides))  # of what the sides have in common
        found = [finding for finding in of_sides[0] if finding in shared]
        for name, findings in zip(self.sides, of_sides, strict=True):
            found += [
                replace(finding, shard=f"{finding.shard}: {name}")
                for finding in findings
                if finding not in shared
            ]
        return [*found, *self.own_findings]

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as values for JSON; `findings` are those of the sides too."""
        return {
            "passed": self.passed,
            "shards": self.shards,
            "sides": {name: report.to_json() for name, report in self.sides.items()},
            "documents": asdict(self.documents),
            "findings": [asdict(finding) for finding in self.findings],
            "controls": [asdict(control) for control in self.controls],
        }


@dataclass
class SplitsReport:
    """The result of a verify run over the splits of a folder."""

    path: str
    splits: dict[str, Report | PairsReport] = field(default_factory=dict)
    documents: DocumentsReport = field(default_factory=DocumentsReport)
    own_findings: list[Finding] = field(default_factory=list)  # of the splits together
    controls: list[Control] = field(default_factory=list)

    def add(self, level: str, place: str, what: str) -> None:
        """Add a finding of the splits together.

        Args:
            place: the name of a split, or of the manifest.
        """
        self.own_findings.append(Finding(level, place, what))

    @property
    def findings(self) -> list[Finding]:
        """All findings: those of each split, with its name before the shard's, and of all."""
        of_splits = (
            replace(finding, shard=f"{name}/{finding.shard}")
            for name, report in self.splits.items()
            for finding in report.findings
        )
        return [*of_splits, *self.own_findings]

    @property
    def passed(self) -> bool:
        """Whether there are splits, and no findings."""
        return bool(self.splits) and not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {
            "passed": self.passed,
            "path": self.path,
            "splits": {name: report.to_json() for name, report in self.splits.items()},
            "documents": asdict(self.documents),
            "findings": [asdict(finding) for finding in self.own_findings],
            "controls": [asdict(control) for control in self.controls],
        }
