"""The order of all rows of a plan -> what each task is told, to find its own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqpack_cli.batching import row_ranges
from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.row_ranges import ArrayRange, LengthRange, Rows, WindowRange
from seqpack_cli.ranges import to_offsets


@dataclass(frozen=True)
class LengthOrder:
    """All sequences that are left, longest first."""

    found: LengthCounts  # of them

    def name_ranges(self, tables: Sequence[BatchTable]) -> Iterator[LengthRange]:
        """Yield the range of each table's rows.

        It is the same for neighbours, since whoever looks for rows has to read all lengths: one
        look serves them all.
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
    """All sequences that are left, in the order of the store but for their windows."""

    offsets: np.ndarray  # int64[parts + 1]: those that are left before each part
    least: int
    most: int
    window: int | None

    def name_ranges(self, tables: Sequence[BatchTable]) -> Iterator[WindowRange]:
        """Yield the range of each table's rows, in whole windows."""
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
    """All rows as arrays; the batches take them from anywhere."""

    rows: Rows

    def name_ranges(self, tables: Sequence[BatchTable]) -> Iterator[ArrayRange]:
        """Yield the rows of each table."""
        for table in tables:
            yield ArrayRange(self.rows, table.starts, table.num_real_rows * table.counts)


def _find_bounds(table: BatchTable) -> tuple[int, int]:
    """Return the first row of batches whose rows follow one another, and the end."""
    last = int(table.num_real_rows[-1] * table.counts[-1])
    return int(table.starts[0]), int(table.starts[-1]) + last


def _group(bounds: Sequence[tuple[int, int]]) -> list[int]:
    """Return the first range of each group that is found together; a large range is a group."""
    firsts = [0] if bounds else []
    for number, (_, stop) in enumerate(bounds):
        if number > firsts[-1] and stop - bounds[firsts[-1]][0] > row_ranges.ROWS_PER_RANGE:
            firsts.append(number)
    return [*firsts, len(bounds)]
