"""How much is worked on at a time: sizes of blocks, pieces, caches and windows.

None of them changes a byte of what is written, nor what is found; they trade memory for speed.
They are fields of one object, `LIMITS`, so that tests can set them to a few entries and walk over
every border between two pieces. Worker processes are given the values of the process that starts
them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Limits:
    """Sizes that bound the memory of a step."""

    default_workers: int | None = None
    """Worker processes of a run that is not told how many; None is one per core."""
    footer_workers: int = 1
    """Processes that read footers of Parquet files; with 0 this process does, and may crash."""


LIMITS = Limits()


def set_limits(values: Limits) -> None:
    """Set the limits of this process to the values of another one."""
    for field in fields(values):
        setattr(LIMITS, field.name, getattr(values, field.name))
