"""What was checked of a user's model, how large errors were, and what was not checked and why."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from seqpack_cli.verification.findings import ErrorSize, Finding

LEVEL = "model"
# The checks, in the order of the report, and what must hold.
CHECKS = {
    "alone": "outputs of each sequence are those of the sequence alone",
    "isolation": "changing some sequences leaves the outputs of the others as they were",
    "order": "outputs of each sequence are the same if the sequences are in another order",
    "padding": "the ids in padding cells do not matter",
    "causal": "changing a token changes no earlier output of its sequence",
    "loss": "changing tokens behind the last target changes no loss",
}


@dataclass
class CheckReport:
    """One property of a model, over all batches."""

    num_batches: int = 0
    num_sequences: int = 0  # whose outputs were compared
    errors: dict[str, ErrorSize] = field(default_factory=dict)  # by dtype, nearest to the limit
    unjudged: dict[str, int] = field(default_factory=dict)  # dtype -> batches hidden by rounding
    why_not: dict[str, int] = field(default_factory=dict)  # reason -> batches not checked

    def note_error(self, dtype: str, error: float, limit: float) -> None:
        """Keep the error of a dtype that came nearest to its limit."""
        new = ErrorSize(dtype, error, limit)
        if dtype not in self.errors or new.share > self.errors[dtype].share:
            self.errors[dtype] = new

    def skip(self, reason: str) -> None:
        """Count a batch that was not checked."""
        self.why_not[reason] = self.why_not.get(reason, 0) + 1


@dataclass
class ModelReport:
    """The result of checking a user's model on sampled batches."""

    model: str  # its class, or MODULE:FUNCTION
    dtype: str
    call: str | None = None  # MODULE:FUNCTION
    judged: list[str] = field(default_factory=list)  # dtypes whose errors are findings
    mode: str = "train"  # or "eval"
    outputs: str | None = None  # "token" or "sequence": what there is an output for
    num_batches: int = 0
    num_sequences: int = 0
    num_tokens: int = 0
    dropout: list[str] = field(default_factory=list)  # found in train mode, and switched off
    checks: dict[str, CheckReport] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def unchecked(self) -> list[str]:
        """The checks that ran on no batch: `passed` says nothing about them."""
        return [name for name, check in self.checks.items() if not check.num_batches]

    def note(self, note: str) -> None:
        """Add a note that is not there yet."""
        if note not in self.notes:
            self.notes.append(note)

    def to_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        document = {"passed": self.passed, **asdict(self)}
        for check in document["checks"].values():
            for size in check["errors"].values():  # JSON has no infinity
                size["error"] = size["error"] if math.isfinite(size["error"]) else "inf"
        return document
