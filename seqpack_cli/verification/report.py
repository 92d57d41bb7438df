"""What verify found, what it covered, and how near the limits it came."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

LEVELS = ("structure", "roundtrip", "run", "forward", "backward")


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold, and where."""

    level: str
    shard: str
    what: str
    batch: int | None = None  # of the whole set, from 0
    row: int | None = None

    def __str__(self) -> str:
        place = self.shard
        place += "" if self.batch is None else f": batch {self.batch}"
        place += "" if self.row is None else f": row {self.row}"
        return f"{self.level}: {place}: {self.what}"


@dataclass
class ErrorSize:
    """The largest error of one quantity, as a share of its limit the worst one seen."""

    quantity: str
    error: float = 0.0
    limit: float = 0.0

    @property
    def share(self) -> float:
        """Give the error as a share of the limit."""
        return self.error / self.limit if self.limit else float(self.error > 0)


@dataclass
class LevelReport:
    """What one level covered."""

    level: str
    num_batches: int = 0
    num_tokens: int = 0
    num_cut_batches: int = 0  # computed for a window of their steps only
    num_sampled_batches: int = 0  # of roundtrip: unpacked row by row too
    seconds: float = 0.0
    errors: dict[str, ErrorSize] = field(default_factory=dict)

    def note_error(self, quantity: str, error: float, limit: float) -> None:
        """Keep the error that came nearest to its limit."""
        new = ErrorSize(quantity, error, limit)
        if quantity not in self.errors or new.share > self.errors[quantity].share:
            self.errors[quantity] = new

    @property
    def tokens_per_second(self) -> float:
        """Give the tokens of the batches by the time they took."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    @property
    def worst(self) -> ErrorSize | None:
        """Give the quantity that came nearest to its limit."""
        return max(self.errors.values(), key=lambda size: size.share, default=None)


@dataclass(frozen=True)
class LayoutSpeed:
    """What the device makes of the same tokens in one layout."""

    layout: str
    forward: float  # tokens a second, padding not counted
    training: float  # forward and backward


@dataclass(frozen=True)
class Control:
    """A damage that was made in memory, to see that verify finds it."""

    name: str
    level: str  # that must find it
    caught: bool | None  # None where the shard has no place for it
    found: str  # in words


@dataclass(frozen=True)
class PlanReport:
    """Whether the batches were compared with the plan of the token store, made again."""

    compared: bool
    plan_version: int  # of the shards
    why_not: str | None = None


@dataclass
class Report:
    """The whole outcome of a verify run."""

    shards: str
    layout: str
    device: str
    device_name: str
    dtype: str
    cell: str
    num_layers: int
    bidirectional: bool
    hidden_size: int
    seed: int
    num_shards: int
    num_batches: int
    num_sequences: int
    num_tokens: int
    is_gate: bool  # whether float errors above their limits are findings
    plan: PlanReport
    levels: list[LevelReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    layout_speeds: list[LayoutSpeed] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain values."""
        document = {"passed": self.passed, **asdict(self)}
        for level, report in zip(document["levels"], self.levels, strict=True):
            level["tokens_per_second"] = round(report.tokens_per_second)
            for size in level["errors"].values():  # JSON has no infinite number
                size["error"] = size["error"] if math.isfinite(size["error"]) else "inf"
        return document
