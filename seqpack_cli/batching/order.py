"""The order of the sequences of a plan, and how a task finds its own rows of it.

Sequences are sorted by length, longest first, ties in their original order; a pair by its first
length, then by its second. The sort is stable: torch's `enforce_sorted=False` is not, so its
indices may change with version and device. numpy sorts 16-bit keys by radix in linear time; if a
sequence is longer than that, the lower half of each key is sorted first and then the upper half.

An order that follows from the lengths alone is not held in memory: a task reads the lengths itself.
In length order its rows are all sequences between two lengths, without some of the longest and of
the shortest; in windows they are the sequences of some parts. Finding them reads lengths part by
part, at about 1 ns each, and holds those of one part and the rows found. An order in memory is the
rows themselves, of which a task gets its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from seqpack_cli.batching.selection import LengthCounts, PartLengths, iter_parts
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets

# Independent random streams of one seed, one for each thing that is shuffled.
SEQUENCES, BATCHES, STEPS, EPOCHS, ROUNDS, ROWS = range(6)


class LengthsChangedError(ValueError):
    """The lengths of a source are not those with which its batches were planned."""


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
    num_rows, longest = len(lengths), int(lengths.max(initial=0))
    window = min(window or num_rows, num_rows) or 1
    # The longest has the smallest key; those that fill up the last window stay behind its rows.
    most = np.iinfo(np.uint16 if longest < 1 << 16 else np.uint32)
    keys = np.full(-(-num_rows // window) * window, most.max, most.dtype)
    np.subtract(longest, lengths, out=keys[:num_rows], casting="unsafe")
    keys = keys.reshape(-1, window)
    order = np.argsort(keys.astype(np.uint16, copy=False), axis=1, kind="stable")
    if longest >= 1 << 16:
        upper = np.take_along_axis((keys >> 16).astype(np.uint16), order, 1)
        del keys
        order = np.take_along_axis(order, np.argsort(upper, axis=1, kind="stable"), 1)
    order += np.arange(0, order.size, window)[:, None]
    return order.reshape(-1)[:num_rows]


def sort_within_batches(
    order: np.ndarray, sides: Sequence[np.ndarray], batch_offsets: np.ndarray
) -> None:
    """Sort the rows of each batch, longest first, in place and stably.

    Args:
        order: one entry per row, batch after batch.
        sides: the lengths of the rows, of each side, sorted in place as well; the first decides.
        batch_offsets: int64[batches + 1], where each batch begins.
    """
    blocks = np.arange(0, batch_offsets[-1], LIMITS.rows_per_block)
    cuts = np.append(np.searchsorted(batch_offsets, blocks), len(batch_offsets) - 1)
    for first, last in pairwise(sorted({*cuts.tolist()})):
        rows = slice(*batch_offsets[[first, last]].tolist())
        batch = np.repeat(np.arange(last - first), np.diff(batch_offsets[first : last + 1])) << 32
        for lengths in reversed(sides):
            places = np.argsort(batch - lengths[rows], kind="stable")
            for column in (order, *sides):
                column[rows] = column[rows][places]


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


def epoch_seed(seed: int, epoch: int, *, stream: int = EPOCHS) -> int:
    """Return the seed of an epoch, or of a round, 64 bits that follow from the seed of the run.

    Raises:
        ValueError: the seed is negative.
    """
    return int(_spawn(seed, stream, epoch).generate_state(1, np.uint64)[0])


def _spawn(seed: int, *key: int) -> np.random.SeedSequence:
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return np.random.SeedSequence(seed, spawn_key=key)


# Orders: each finds the rows of a task, given the first row and the number of rows of its batches


class Rows(NamedTuple):
    """The index, length and start of rows in any order: in memory, an order by itself."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int32[N]
    piece_starts: np.ndarray | None = None  # int32[N], where in its sequence each row begins
    row_indices: np.ndarray | None = None  # int32[N], as in ShardRows
    continues: np.ndarray | None = None  # uint8[N], as in ShardRows
    decoder: Rows | None = None  # of pairs, the index and length on the decoder's side

    def take(self, places: np.ndarray) -> Rows:
        """Return the rows at some places, in that order."""
        return Rows(*(None if column is None else column.take(places) for column in self))  # type: ignore[arg-type]

    def find(self, _: PartLengths, starts: np.ndarray, num_rows: np.ndarray) -> Rows:
        """Return the rows of some batches."""
        return self.take(expand_ranges(starts, num_rows))


def join_rows(pieces: list[Rows]) -> Rows:
    """Concatenate rows, column by column, and empty the list: or both would be in memory.

    Args:
        pieces: at least one; all or none have each of the other columns.
    """
    if len(pieces) == 1:
        return pieces[0]
    columns = list(zip(*pieces, strict=True))
    pieces.clear()
    joined = list[Any]()
    while columns:
        column = columns.pop(0)
        join = join_rows if isinstance(column[0], Rows) else np.concatenate
        joined.append(None if column[0] is None else join(list(column)))
    return Rows(*joined)


@dataclass(frozen=True, eq=False)
class LengthOrder:
    """All kept sequences, longest first."""

    kept: LengthCounts

    def find(self, source: PartLengths, starts: np.ndarray, num_rows: np.ndarray) -> Rows:
        """Find the rows of some batches, and with them those of the next tasks, which it keeps."""
        start, stop = int(starts[0]), int(starts[-1] + num_rows[-1])
        first, rows = _found.get(source, (0, NO_ROWS))
        if not first <= start <= stop <= first + len(rows.indices):
            size = LIMITS.rows_per_range
            first, end = start, max(stop, min(start + size, self.kept.num_sequences))
            rows = self._read(source, start, end)
            if end - start <= size:
                _found[source] = first, rows
        return rows.take(expand_ranges(starts - first, num_rows))

    def _read(self, source: PartLengths, start: int, stop: int) -> Rows:
        """Read all lengths, take the sequences of a range of this order, and sort them."""
        offsets = to_offsets(self.kept.counts)
        places = np.searchsorted(offsets, [start, stop - 1], "right") - 1
        longest, shortest = self.kept.lengths[places].tolist()
        # those of the longest length before this range, and of the shortest length before its end
        num_skipped, num_shortest = ([start, stop] - offsets[places]).tolist()
        pieces = [NO_ROWS]
        for number, lengths in iter_parts(source):
            inside = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
            found = lengths[inside]
            first, last = (np.flatnonzero(found == length) for length in (longest, shortest))
            before, behind = first[: max(num_skipped, 0)], last[max(num_shortest, 0) :]
            num_skipped, num_shortest = num_skipped - len(first), num_shortest - len(last)
            if len(before) or len(behind):
                inside = np.delete(inside, np.concatenate([before, behind]))
                found = lengths[inside]
            pieces.append(Rows(inside + int(source.part_offsets[number]), found))
        rows = _join_found(pieces, stop - start)
        return rows.take(length_order(rows.lengths))


NO_ROWS = Rows(np.empty(0, np.int64), np.empty(0, np.int32))
# The first and all rows that were found last in each source: a worker's tasks follow one another.
_found: WeakKeyDictionary[PartLengths, tuple[int, Rows]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class WindowOrder:
    """All kept sequences in the order of the store, each window sorted by length."""

    offsets: np.ndarray  # int64[parts + 1]: number of kept sequences before each part
    window: int  # 1: the order of the store

    def find(self, source: PartLengths, starts: np.ndarray, num_rows: np.ndarray) -> Rows:
        """Read the parts with the rows of some batches, sort each window, and then each batch."""
        start, stop = int(starts[0]), int(starts[-1] + num_rows[-1])
        start = start // self.window * self.window
        stop = min(-(-stop // self.window) * self.window, int(self.offsets[-1]))
        part = int(np.searchsorted(self.offsets, start, "right")) - 1
        pieces, end = [NO_ROWS], int(self.offsets[part])
        for number, lengths in iter_parts(source, part):
            inside = np.flatnonzero(lengths)
            inside, end = inside[max(start - end, 0) : stop - end], end + len(inside)
            pieces.append(Rows(inside + int(source.part_offsets[number]), lengths[inside]))
            if end >= stop:
                break
        rows = _join_found(pieces, stop - start)
        if self.window > 1:
            rows = rows.take(length_order(rows.lengths, window=self.window))
        rows = rows.take(expand_ranges(starts - start, num_rows))
        sort_within_batches(rows.indices, [rows.lengths], to_offsets(num_rows))
        return rows


Order = Rows | LengthOrder | WindowOrder


def _join_found(pieces: list[Rows], num_rows: int) -> Rows:
    rows = join_rows(pieces)
    if len(rows.indices) != num_rows:
        raise LengthsChangedError
    return rows
