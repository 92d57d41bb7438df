"""A fault that verify found, and the size of an error beside its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One fault, and where it is."""

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
    """The error of one quantity that came nearest to its limit."""

    quantity: str
    error: float = 0.0
    limit: float = 0.0

    @property
    def share(self) -> float:
        """The error divided by its limit."""
        return self.error / self.limit if self.limit else float(self.error > 0)
