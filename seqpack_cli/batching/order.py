"""The order of the sequences of a plan, and how a task finds its own rows of it.

Sequences are sorted by length, longest first, ties in their original order; a pair by its first
length, then by its second. The sort is stable: torch's `enforce_sorted=False` is not, so its
indices may change with version and device. numpy sorts 16-bit keys by radix in linear time; if a
sequence is longer than that, the lower half of each key is sorted first and then the upper half.

An order that follows from the lengths alone is not held in memory: a task gets a range of it and
reads the lengths itself. In length order a range is all sequences between two lengths, without some
of the longest and of the shortest; in windows it is the sequences of some parts. Finding them reads
lengths part by part, at about 1 ns each, and holds those of one part and the rows found. Where the
order is an array, a task gets its own entries of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from seqpack_cli.batching.selection import LengthCounts, PartLengths, iter_parts
from seqpack_cli.errors import check_positive
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets

# Independent random streams of one seed, one for each thing that is shuffled.
SEQUENCES, BATCHES, STEPS, EPOCHS, ROUNDS, ROWS = range(6)


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


def length_order(lengths: np.ndarray, *, window: int | None = None) -> np.ndarray:
    """Return the indices of sequences, longest first, ties in their original order.

    Args:
        lengths: integers, one per sequence.
        window: sort each run of this many sequences by itself; None sorts all together.

    Returns:
        int64[N].

    >>> length_order(np.array([2, 5, 5, 1])).tolist()
    [1, 2, 0, 3]
    >>> length_order(np.array([2, 5, 5, 6]), window=2).tolist()
    [1, 0, 3, 2]
    """
    check_positive("window", window)
    if window is None or window >= len(lengths):
        return _sort(_keys(lengths))
    order = np.arange(len(lengths))
    num_sorted = len(lengths) // window * window
    keys = _keys(lengths)
    windows = order[:num_sorted].reshape(-1, window)
    windows[:] = _sort(keys[:num_sorted].reshape(-1, window))
    windows += np.arange(0, num_sorted, window)[:, None]
    order[num_sorted:] = _sort(keys[num_sorted:]) + num_sorted
    return order


def sort_within_batches(
    order: np.ndarray, sides: Sequence[np.ndarray], batch_offsets: np.ndarray
) -> None:
    """Sort the rows of each batch, longest first, in place and stably.

    Args:
        order: one entry per row, batch after batch.
        sides: the lengths of the rows, of each side, sorted in place as well; the first decides.
        batch_offsets: int64[batches + 1], where each batch begins.
    """
    first, num_batches = 0, len(batch_offsets) - 1
    while first < num_batches:
        start = int(batch_offsets[first])
        past = int(np.searchsorted(batch_offsets, start + LIMITS.rows_per_block, "right")) - 1
        last = min(max(past, first + 1), num_batches)
        rows = slice(start, int(batch_offsets[last]))
        batch = np.repeat(np.arange(last - first), np.diff(batch_offsets[first : last + 1])) << 32
        for lengths in reversed(sides):
            places = np.argsort(batch - lengths[rows], kind="stable")
            for column in (order, *sides):
                column[rows] = column[rows][places]
        first = last


def _sort(keys: np.ndarray) -> np.ndarray:
    """Sort unsigned keys of at most 32 bits stably along the last axis; return their indices."""
    order = np.argsort(keys.astype(np.uint16), axis=-1, kind="stable")
    if keys.dtype == np.uint16:
        return order
    upper = np.take_along_axis((keys >> 16).astype(np.uint16), order, -1)
    del keys
    return np.take_along_axis(order, np.argsort(upper, axis=-1, kind="stable"), -1)


def _keys(lengths: np.ndarray) -> np.ndarray:
    """Turn lengths into sort keys, the longest the smallest; uint16 if they fit, else uint32."""
    longest = int(lengths.max(initial=0))
    dtype = np.uint16 if longest <= np.iinfo(np.uint16).max else np.uint32
    keys: np.ndarray = np.subtract(longest, lengths, dtype=dtype, casting="unsafe")
    return keys


def shuffled(num_items: int, *, seed: int, stream: int = SEQUENCES) -> np.ndarray:
    """Return the numbers from 0 to num_items - 1 in random order, the same on every machine.

    numpy guarantees the raw stream of its PCG64, but not the result of `permutation`; if that
    changed with an update, a continued run would write different shards. So items are sorted by raw
    random bits. 8 bytes per item, and 8 more while it runs.

    Args:
        seed: at least 0.
        stream: each stream has an independent order for the same seed.

    Returns:
        int64[num_items], each index once.

    Raises:
        ValueError: the seed is negative.
    """
    keys = np.random.PCG64(_spawn(seed, stream)).random_raw(num_items)
    # The low bits hold the item's number, so that no two keys are equal; 34 random bits are left
    # for a thousand million items.
    num_bits = np.uint64(max(num_items - 1, 1).bit_length())
    keys >>= num_bits
    keys <<= num_bits
    keys |= np.arange(num_items, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << num_bits) - np.uint64(1)
    return keys.view(np.int64)


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of an epoch, 64 bits that follow from the seed of the run.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, EPOCHS, epoch).generate_state(1, np.uint64)[0])


def round_seed(seed: int, number: int) -> int:
    """Return the seed of a round of a plan: of the first one the seed itself, then 64 bits of it.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, ROUNDS, number).generate_state(1, np.uint64)[0]) if number else seed


def _spawn(seed: int, *key: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return np.random.SeedSequence(seed, spawn_key=key)


# Ranges of an order, from which a task finds the rows of its batches


@dataclass(frozen=True)
class LengthRange:
    """A range of rows in length order: longest first, ties by index."""

    start: int  # in the order of all kept sequences
    num_rows: int
    longest: int
    shortest: int
    num_skipped: int  # sequences of the longest length that come before this range
    num_shortest: int  # sequences of the shortest length before its end, skipped ones included

    def find(self, source: PartLengths, starts: np.ndarray, num_rows: np.ndarray) -> Rows:
        """Return the rows of batches in this range; the whole range is kept for the next call.

        Args:
            starts: the first row of each batch, in the order of all kept sequences.
            num_rows: of each batch.
        """
        span, rows = _found.get(source, (None, None))
        if span != self or rows is None:
            rows = self._read(source)
            if self.num_rows <= LIMITS.rows_per_range:  # larger ranges are not shared
                _found[source] = (self, rows)
        return rows.take(expand_ranges(starts - self.start, num_rows))

    def _read(self, source: PartLengths) -> Rows:
        """Read all lengths, take the rows of the range, and sort them."""
        num_longest = num_shortest = 0  # in the parts before
        pieces = []
        for number, lengths in iter_parts(source):
            inside = np.flatnonzero((lengths >= self.shortest) & (lengths <= self.longest))
            found = lengths[inside]
            longest, shortest = (
                np.flatnonzero(found == it) for it in (self.longest, self.shortest)
            )
            before = longest[: max(self.num_skipped - num_longest, 0)]
            behind = shortest[max(self.num_shortest - num_shortest, 0) :]
            num_longest, num_shortest = num_longest + len(longest), num_shortest + len(shortest)
            if len(before) or len(behind):  # of other ranges, but as long as the first or last row
                inside = np.delete(inside, np.concatenate([before, behind]))
                found = lengths[inside]
            pieces.append(Rows(inside + int(source.part_offsets[number]), found))
        rows = _join_parts(pieces, self.num_rows)
        return rows.take(length_order(rows.lengths))


# The range found last in each source: tasks that share a range run one after another.
_found: WeakKeyDictionary[PartLengths, tuple[LengthRange, Rows]] = WeakKeyDictionary()


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
        rows = self.find()
        return ArrayRange, (rows, np.array([0]), np.array([len(rows.indices)]))


def join_rows(pieces: list[Rows]) -> Rows:
    """Concatenate rows, column by column, and empty the list: or both would be in memory.

    Args:
        pieces: at least one; all or none have each of the other columns.
    """
    if len(pieces) == 1:
        return pieces[0]
    columns = list(zip(*pieces, strict=True))
    pieces.clear()
    joined = []
    while columns:
        column = columns.pop(0)
        joined.append(None if column[0] is None else np.concatenate(column))
    return Rows(*joined)  # type: ignore[arg-type]


def _join_parts(pieces: Iterable[Rows], num_rows: int) -> Rows:
    rows = join_rows([Rows(np.empty(0, np.int64), np.empty(0, np.int32)), *pieces])
    if len(rows.indices) != num_rows:
        raise LengthsChangedError
    return rows


# Orders of all kept sequences

Runs = tuple[np.ndarray, np.ndarray]  # first row and number of rows of each run of batches


@dataclass(frozen=True)
class LengthOrder:
    """All kept sequences, longest first."""

    found: LengthCounts  # of the kept sequences

    def iter_ranges(self, tasks: Sequence[Runs]) -> Iterator[LengthRange]:
        """Yield the range of each task's rows.

        Neighbours share a range: finding its rows takes a pass over all lengths, and one pass finds
        them for all of these tasks.
        """
        bounds, first = [_find_bounds(*runs) for runs in tasks], 0
        while first < len(bounds):
            start, last = bounds[first][0], first + 1
            while last < len(bounds) and bounds[last][1] - start <= LIMITS.rows_per_range:
                last += 1
            yield from [self._between(start, bounds[last - 1][1])] * (last - first)
            first = last

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


@dataclass(frozen=True, eq=False)
class WindowOrder:
    """All kept sequences in the order of the store, each window sorted by length, if any."""

    offsets: np.ndarray  # int64[parts + 1]: number of kept sequences before each part
    window: int | None

    def iter_ranges(self, tasks: Sequence[Runs]) -> Iterator[WindowOrder]:
        """Yield the order itself for each task: it knows the parts with the task's rows."""
        yield from [self] * len(tasks)

    def find(self, source: PartLengths, starts: np.ndarray, num_rows: np.ndarray) -> Rows:
        """Read the parts with the rows of some batches, sort each window, and then each batch."""
        step = self.window or 1
        start, stop = _find_bounds(starts, num_rows)
        start = start // step * step
        stop = min(-(-stop // step) * step, int(self.offsets[-1]))
        part = int(np.searchsorted(self.offsets, start, "right")) - 1
        pieces, end = [], int(self.offsets[part])
        for number, lengths in iter_parts(source, part):
            inside = np.flatnonzero(lengths)
            inside, end = inside[max(start - end, 0) : stop - end], end + len(inside)
            pieces.append(Rows(inside + int(source.part_offsets[number]), lengths[inside]))
            if end >= stop:
                break
        rows = _join_parts(pieces, stop - start)
        if self.window is not None:
            rows = rows.take(length_order(rows.lengths, window=self.window))
        rows = rows.take(expand_ranges(starts - start, num_rows))
        sort_within_batches(rows.indices, [rows.lengths], to_offsets(num_rows))
        return rows


@dataclass(frozen=True, eq=False)
class ArrayOrder:
    """All rows as arrays, in any order."""

    rows: Rows

    def iter_ranges(self, tasks: Sequence[Runs]) -> Iterator[ArrayRange]:
        """Yield the rows of each task."""
        for runs in tasks:
            yield ArrayRange(self.rows, *runs)


def _find_bounds(starts: np.ndarray, num_rows: np.ndarray) -> tuple[int, int]:
    """Return the first row of runs that follow one another, and the end of the last row."""
    return int(starts[0]), int(starts[-1] + num_rows[-1])
