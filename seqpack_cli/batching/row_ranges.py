"""Find the rows of some batches: a task gets a range of the order and reads the lengths itself.

In length order a range is all sequences between two lengths, without some of the longest and of the
shortest; in windows it is the sequences of some parts. Finding them reads lengths part by part, at
about 1 ns each, and holds those of one part and the rows found. Where the order is an array, a task
gets its own entries of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import PartLengths, iter_parts
from seqpack_cli.batching.length_order import length_order, sort_within_batches
from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets


class LengthsChangedError(ValueError):
    """The lengths of a source are not those with which its batches were planned."""


class Rows(NamedTuple):
    """The index, length and start of rows in any order."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int32[N]
    piece_starts: np.ndarray | None = None  # int32[N], where in its sequence each row begins
    row_indices: np.ndarray | None = None  # int32[N], as in ShardRows
    continues: np.ndarray | None = None  # uint8[N], as in ShardRows
    decoder_indices: np.ndarray | None = None  # int64[N], of pairs
    decoder_lengths: np.ndarray | None = None  # int32[N], of pairs

    def take(self, places: np.ndarray) -> Rows:
        """Return the rows at some places, in that order."""
        return Rows(*(None if column is None else column[places] for column in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class LengthRange:
    """A range of rows in length order: longest first, ties by index."""

    start: int  # in the order of all kept sequences
    num_rows: int
    longest: int
    shortest: int
    num_skipped: int  # sequences of the longest length that come before this range
    num_shortest: int  # sequences of the shortest length before its end, skipped ones included

    def find(self, source: PartLengths, batches: BatchTable) -> Rows:
        """Return the rows of batches in this range; the whole range is kept for the next call."""
        return self._find(source).take(_place_rows(batches, self.start))

    def _find(self, source: PartLengths) -> Rows:
        span, rows = _found.get(source, (None, None))
        if span != self or rows is None:
            rows = self._read(source)
            if self.num_rows <= LIMITS.rows_per_range:  # larger ranges are not shared
                _found[source] = (self, rows)
        return rows

    def _read(self, source: PartLengths) -> Rows:
        """Read all lengths, take the rows of the range, and sort them."""
        seen = {self.longest: 0, self.shortest: 0}
        pieces = []
        for number, lengths in iter_parts(source):
            inside = np.flatnonzero((lengths >= self.shortest) & (lengths <= self.longest))
            found, outside = lengths[inside], []
            for length in seen:
                equal = np.flatnonzero(found == length)
                outside.append(equal[self._is_outside(length, seen[length], len(equal))])
                seen[length] += len(equal)
            if any(map(len, outside)):  # of other ranges, but as long as the first or last row here
                inside = np.delete(inside, np.concatenate(outside))
                found = lengths[inside]
            pieces.append(Rows(inside + int(source.part_offsets[number]), found))
        rows = _join(pieces, self.num_rows)
        return rows.take(length_order(rows.lengths))

    def _is_outside(self, length: int, num_before: int, num_equal: int) -> np.ndarray:
        numbers = np.arange(num_before, num_before + num_equal)
        outside = np.zeros(num_equal, bool)
        if length == self.longest:
            outside |= numbers < self.num_skipped
        if length == self.shortest:
            outside |= numbers >= self.num_shortest
        return outside


# The range found last in each source: tasks that share a range run one after another.
_found: WeakKeyDictionary[PartLengths, tuple[LengthRange, Rows]] = WeakKeyDictionary()


@dataclass(frozen=True)
class WindowRange:
    """A range of rows in the order of the store, each window sorted by length if there are any."""

    start: int  # in the order of all kept sequences
    num_rows: int
    first_part: int  # the first part with a row of this range
    num_before: int  # kept sequences in the parts before it
    least: int  # fewest tokens of a kept sequence
    most: int  # most tokens of a kept sequence
    window: int | None

    def find(self, source: PartLengths, batches: BatchTable) -> Rows:
        """Read the parts with these rows, sort each window, and then each batch."""
        pieces, end, stop = [], self.num_before, self.start + self.num_rows
        for number, lengths in iter_parts(source, self.first_part):
            inside = np.flatnonzero((lengths >= self.least) & (lengths <= self.most))
            inside, end = inside[max(self.start - end, 0) : stop - end], end + len(inside)
            pieces.append(Rows(inside + int(source.part_offsets[number]), lengths[inside]))
            if end >= stop:
                break
        rows = _join(pieces, self.num_rows)
        if self.window is not None:
            rows = rows.take(length_order(rows.lengths, window=self.window))
        rows = rows.take(_place_rows(batches, self.start))
        sort_within_batches(rows.indices, rows.lengths, to_offsets(batches.num_real_rows))
        return rows


@dataclass(frozen=True, eq=False)
class ArrayRange:
    """Runs of rows of an order in memory; pickled with only its own rows."""

    order: Rows
    starts: np.ndarray  # of each run
    num_rows: np.ndarray  # of each run

    def find(self, *_: object) -> Rows:
        """Return the rows of the batches."""
        return self.order.take(expand_ranges(self.starts, self.num_rows))

    def __reduce__(self) -> tuple[type[ArrayRange], tuple[Rows, np.ndarray, np.ndarray]]:
        rows = self.order.take(expand_ranges(self.starts, self.num_rows))
        return ArrayRange, (rows, np.array([0]), np.array([len(rows.indices)]))


RowRange = LengthRange | WindowRange | ArrayRange


@dataclass(frozen=True)
class PlannedRows:
    """The batches of one task, and the range in which their rows are found."""

    table: BatchTable
    span: RowRange  # may hold rows of other tasks too

    def find(self, source: PartLengths) -> ShardRows:
        """Find the rows in the source that was planned.

        Raises:
            LengthsChangedError: its lengths are not those of the plan.
        """
        batches = self.table.expand()
        rows, offsets = self.span.find(source, batches), to_offsets(batches.num_real_rows)
        num_tokens = np.add.reduceat(rows.lengths, offsets[:-1], dtype=np.int64)
        if not np.array_equal(num_tokens, batches.num_tokens):
            raise LengthsChangedError
        sizes = offsets, batches.num_cells, batches.num_filler_rows
        others = rows.piece_starts, rows.row_indices, rows.continues
        found = ShardRows(rows.indices, rows.lengths, *sizes, *others)
        if rows.decoder_indices is None or rows.decoder_lengths is None:
            return found
        sizes = offsets, batches.decoder_cells, batches.num_filler_rows
        decoder = ShardRows(rows.decoder_indices, rows.decoder_lengths, *sizes)
        return replace(found, decoder=decoder)


def join_rows(pieces: list[Rows]) -> Rows:
    """Concatenate rows, column by column, and empty the list: or both would be in memory.

    Args:
        pieces: at least one; all or none have each of the other columns.
    """
    columns = list(zip(*pieces, strict=True))
    pieces.clear()
    joined = []
    while columns:
        column = columns.pop(0)
        joined.append(None if column[0] is None else np.concatenate(column))
    return Rows(*joined)  # type: ignore[arg-type]


def _place_rows(batches: BatchTable, start: int) -> np.ndarray:
    """Return the places of all rows of some batches, counted from start, int64[rows]."""
    return expand_ranges(batches.starts - start, batches.num_real_rows)


def _join(pieces: Iterable[Rows], num_rows: int) -> Rows:
    empty = Rows(np.empty(0, np.int64), np.empty(0, np.int32))
    indices, lengths, *_ = zip(empty, *pieces, strict=True)
    rows = Rows(np.concatenate(indices), np.concatenate(lengths))
    if len(rows.indices) != num_rows:
        raise LengthsChangedError
    return rows
