"""The order of all rows of a plan, and the range of it that each task gets to find its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.row_ranges import ArrayRange, LengthRange, Rows, WindowRange
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets


@dataclass(frozen=True)
class LengthOrder:
    """All kept sequences, longest first."""

    found: LengthCounts  # of the kept sequences

    def iter_ranges(self, tables: Sequence[BatchTable]) -> Iterator[LengthRange]:
        """Yield a range of rows for each table.

        Neighbours share a range: finding its rows takes a pass over all lengths, and one pass finds
        them for all of these tables.
        """
        bounds = [_find_bounds(table) for table in tables]
        for first, last in pairwise(_group(bounds)):
            found = self._between(bounds[first][0], bounds[last - 1][1])
            yield from [found] * (last - first)

    def _between(self, start: int, stop: int) -> LengthRange:
        offsets = to_offsets(self.found.counts)
        first, last = (np.searchsorted(offsets, [start, stop - 1], "right") - 1).tolist()
        return LengthRange(
            start,
            stop - start,
            int(self.found.lengths[first]),
            int(self.found.lengths[last]),
            start - int(offsets[first]),
            stop - int(offsets[last]),
        )


@dataclass(frozen=True)
class WindowOrder:
    """All kept sequences in the order of the store, each window sorted by length."""

    offsets: np.ndarray  # int64[parts + 1]: number of kept sequences before each part
    least: int
    most: int
    window: int | None

    def iter_ranges(self, tables: Sequence[BatchTable]) -> Iterator[WindowRange]:
        """Yield the range of each table's rows, extended to whole windows."""
        for table in tables:
            start, stop = _find_bounds(table)
            if self.window is not None:
                start = start // self.window * self.window
                stop = min(-(-stop // self.window) * self.window, int(self.offsets[-1]))
            part = int(np.searchsorted(self.offsets, start, "right")) - 1
            num_before = int(self.offsets[part])
            yield WindowRange(
                start, stop - start, part, num_before, self.least, self.most, self.window
            )


@dataclass(frozen=True, eq=False)
class ArrayOrder:
    """All rows as arrays, in any order."""

    rows: Rows

    def iter_ranges(self, tables: Sequence[BatchTable]) -> Iterator[ArrayRange]:
        """Yield the rows of each table."""
        for table in tables:
            yield ArrayRange(self.rows, table.starts, table.num_real_rows * table.counts)


def _find_bounds(table: BatchTable) -> tuple[int, int]:
    """Return the first row of batches whose rows are consecutive, and the end of the last row."""
    last = int(table.num_real_rows[-1] * table.counts[-1])
    return int(table.starts[0]), int(table.starts[-1]) + last


def _group(bounds: Sequence[tuple[int, int]]) -> list[int]:
    """Group ranges that are found together; return the first of each group, and the end."""
    firsts = [0] if bounds else []
    for number, (_, stop) in enumerate(bounds):
        if number > firsts[-1] and stop - bounds[firsts[-1]][0] > LIMITS.rows_per_range:
            firsts.append(number)
    return [*firsts, len(bounds)]
