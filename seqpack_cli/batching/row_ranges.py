"""The rows of some batches, named by their places in the order: a task finds them by itself.

In the order of length they are those between two lengths, less some of the longest and of the
shortest; in windows, those of some parts. Whoever looks reads lengths part by part, about 1 ns
each, and holds those of one part and the rows that are found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.length_counts import LengthCounts, PartLengths, iter_parts
from seqpack_cli.batching.length_order import length_order
from seqpack_cli.ranges import expand_ranges, to_offsets

Rows = tuple[np.ndarray, np.ndarray]  # int64[N], the sequence of each row, and int32[N], its length


@dataclass(frozen=True)
class LengthRange:
    """Rows of the order of length, longest first, equal ones by index."""

    start: int  # in the order of all sequences that are left
    num_rows: int
    longest: int
    shortest: int
    num_skipped: int  # of the longest ones
    num_shortest: int  # how many of the shortest ones are before the end, skipped ones too

    def find(self, source: PartLengths) -> Rows:
        """Read all lengths, take these rows, and sort them."""
        seen = {self.longest: 0, self.shortest: 0}
        pieces = []
        for number, lengths in iter_parts(source):
            inside = np.flatnonzero((lengths >= self.shortest) & (lengths <= self.longest))
            found, outside = lengths[inside], []
            for length in seen:
                equal = np.flatnonzero(found == length)
                outside.append(equal[self._is_outside(length, seen[length], len(equal))])
                seen[length] += len(equal)
            if any(map(len, outside)):  # neighbours' rows, as long as the first or last of these
                inside = np.delete(inside, np.concatenate(outside))
                found = lengths[inside]
            first = int(source.part_offsets[number])
            pieces.append((inside + first, found))
        indices, lengths = _join(pieces)
        order = length_order(lengths)
        return indices[order], lengths[order]

    def _is_outside(self, length: int, num_before: int, num_equal: int) -> np.ndarray:
        numbers = np.arange(num_before, num_before + num_equal)
        outside = np.zeros(num_equal, bool)
        if length == self.longest:
            outside |= numbers < self.num_skipped
        if length == self.shortest:
            outside |= numbers >= self.num_shortest
        return outside


@dataclass(frozen=True)
class WindowRange:
    """Rows in the order of the store, whole windows sorted by length if there are windows."""

    start: int  # in the order of all sequences that are left
    num_rows: int
    first_part: int  # that holds one of them
    num_before: int  # sequences that are left in the parts before
    least: int  # tokens of a sequence that is left
    most: int
    window: int | None

    def find(self, source: PartLengths) -> Rows:
        """Read the lengths of the parts that hold these rows, take them, and sort each window."""
        pieces, end, stop = [], self.num_before, self.start + self.num_rows
        for number, lengths in iter_parts(source, self.first_part):
            inside = np.flatnonzero((lengths >= self.least) & (lengths <= self.most))
            inside, end = inside[max(self.start - end, 0) : stop - end], end + len(inside)
            first = int(source.part_offsets[number])
            pieces.append((inside + first, lengths[inside]))
            if end >= stop:
                break
        indices, lengths = _join(pieces)
        if self.window is None:
            return indices, lengths
        order = length_order(lengths, window=self.window)
        return indices[order], lengths[order]


RowRange = LengthRange | WindowRange


@dataclass(frozen=True)
class LengthOrder:
    """All sequences that are left, longest first."""

    found: LengthCounts  # of them

    def between(self, start: int, stop: int) -> LengthRange:
        """Name the rows from one place of the order up to another."""
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

    def between(self, start: int, stop: int) -> WindowRange:
        """Name the rows from one place of the order up to another, and their whole windows."""
        if self.window is not None:
            start = start // self.window * self.window
            stop = min(-(-stop // self.window) * self.window, int(self.offsets[-1]))
        part = int(np.searchsorted(self.offsets, start, "right")) - 1
        num_before = int(self.offsets[part])
        return WindowRange(
            start, stop - start, part, num_before, self.least, self.most, self.window
        )


@dataclass(frozen=True)
class RangeRows:
    """The batches of one task, and where their rows are found."""

    runs: BatchRuns
    span: RowRange  # that holds all their rows, and those of neighbours

    def place_rows(self) -> np.ndarray:
        """Give where each row is among those of the span, batch after batch, int64[rows]."""
        return expand_ranges(
            self.runs.starts - self.span.start, self.runs.num_rows * self.runs.counts
        )


def _join(pieces: list[Rows]) -> Rows:
    empty = (np.empty(0, np.int64), np.empty(0, np.int32))
    indices, lengths = zip(*(pieces or [empty]), strict=True)
    return np.concatenate(indices), np.concatenate(lengths)
