"""Fill rows that several sequences share: best fit, sequential, chunks, and streams of chunks.

`best-fit` leaves little room unused; its rows are shuffled by default, because best fit puts
sequences of similar length together, which hurts training. `sequential` fills one row after another
in the order of the store; both split a sequence only if it is longer than a row. `chunk` cuts
anywhere, so that every row is full. Streams take the chunks in runs: each stream goes on in the
next batch where it ended in this one.

Best fit decreasing: the longest sequence first, each into the fullest bin that still has room.
Sequences of equal length are placed together, and so are bins with the same free space: the time
grows with the number of distinct lengths and free spaces, not of sequences, and is negligible for a
capacity of 2,048. Best fit decreasing needs at most 11/9 of the fewest possible bins plus a
constant (Johnson 1973); with many short sequences, hardly more than tokens / capacity.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.order import ROWS, Rows, length_order, shuffled
from seqpack_cli.errors import check_positive
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import expand_ranges, to_offsets

# Bits that say whether a piece of a sequence goes on from the batch before, or into the next one.
FROM_BEFORE = 1
INTO_NEXT = 2


def fill_rows(rows: Rows, longest: int, options: ResolvedOptions) -> tuple[Rows, np.ndarray]:
    """Put sequences, or pieces of them, into rows, in the order that the batches have.

    Args:
        rows: whole sequences, none empty.
        longest: of the sequences of all rounds: whether some are split.
        options: of a layout whose rows are shared.

    Returns:
        The sequences and pieces row by row, with row_indices if a batch has several rows, and
        int64[rows + 1], the first of each row.
    """
    capacity, num_rows = options.row_length, options.batch_size
    if options.fill == "chunk":
        rows, offsets = cut_chunks(rows, capacity)
    else:
        if longest > capacity:
            rows = _split(rows, capacity)
        rounded = round_up(rows.lengths, options.align_sequences)
        if options.fill == "sequential":
            offsets = cut_by_tokens(rounded, max(len(rounded), 1), capacity)
        else:
            rows, offsets = _fill_bins(rows, rounded, capacity)
    if num_rows is None:
        return rows, offsets
    sizes, order = np.diff(offsets), None
    row_indices = np.arange(len(sizes)) % num_rows
    if options.carries_state:
        rows, order, row_indices = _deal_streams(rows, offsets, num_rows)
    elif options.shuffle and options.fill == "best-fit":  # neighbours are of similar length
        order = shuffled(len(sizes), seed=options.seed, stream=ROWS)
    if order is not None:
        rows = rows.take(expand_ranges(offsets[:-1][order], sizes[order]))
        sizes = sizes[order]
    row_indices = np.repeat(row_indices, sizes).astype(np.int32)
    return rows._replace(row_indices=row_indices), to_offsets(sizes)


def cut_chunks(rows: Rows, capacity: int) -> tuple[Rows, np.ndarray]:
    """Cut rows one after another into chunks of a number of tokens; the last one may be shorter.

    Args:
        rows: whole sequences in any order, none empty.
        capacity: tokens of a chunk, at least 1.

    Returns:
        The pieces, with piece_starts, and int64[chunks + 1], the first piece of each chunk.

    >>> rows, offsets = cut_chunks(Rows(np.array([7, 8]), np.array([3, 4], np.int32)), 5)
    >>> rows.indices.tolist(), rows.piece_starts.tolist(), rows.lengths.tolist()
    ([7, 8, 8], [0, 0, 2], [3, 2, 2])
    >>> offsets.tolist()
    [0, 2, 3]
    """
    begins = to_offsets(rows.lengths)
    total = int(begins[-1])
    cuts = np.arange(0, total, capacity)
    inside = cuts[begins[np.searchsorted(begins, cuts)] != cuts]  # not where a sequence begins
    # both ascend, so a stable sort only merges them
    starts = np.sort(np.concatenate([begins[:-1], inside]), kind="stable")
    lengths = np.diff(starts, append=total).astype(np.int32)
    is_first = np.ones(len(starts), bool)
    is_first[np.searchsorted(starts, inside)] = False
    number = np.cumsum(is_first) - 1  # of its sequence
    pieces = Rows(rows.indices[number], lengths, (starts - begins[:-1][number]).astype(np.int32))
    return pieces, np.append(np.searchsorted(starts, cuts), len(starts))


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, as int64; lengths themselves if the multiple is 1."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded


def cut_by_tokens(lengths: np.ndarray, most_rows: int, max_tokens: int) -> np.ndarray:
    """Cut lengths into runs of limited rows and tokens, in the given order; 0.1 us per sequence.

    Returns:
        int64[runs + 1], the first of each run and the number of lengths.
    """
    starts = array("q", [0])
    start = num_tokens = 0
    size = LIMITS.sequences_per_block
    for block in range(0, len(lengths), size):
        for row, length in enumerate(lengths[block : block + size].tolist(), block):
            num_tokens += length
            if num_tokens > max_tokens or row - start == most_rows:
                start, num_tokens = row, length
                starts.append(row)
    return np.append(np.frombuffer(starts, np.int64)[: len(lengths)], len(lengths))


def _split(rows: Rows, capacity: int) -> Rows:
    """Cut long sequences into pieces."""
    num_pieces = -(-rows.lengths // capacity)
    long = np.flatnonzero(num_pieces > 1)
    firsts = (np.cumsum(num_pieces, dtype=np.int64) - num_pieces)[long]
    indices, lengths = np.repeat(rows.indices, num_pieces), np.repeat(rows.lengths, num_pieces)
    pieces = expand_ranges(firsts, num_pieces[long])
    starts = np.zeros(len(indices), np.int32)
    starts[pieces] = (pieces - np.repeat(firsts, num_pieces[long])) * capacity
    lengths[pieces] = np.minimum(lengths[pieces] - starts[pieces], capacity)
    return Rows(indices, lengths, starts)


def _deal_streams(
    rows: Rows, row_offsets: np.ndarray, num_streams: int
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Deal rows to streams: row t of each stream, then row t + 1 of each.

    Streams are equally long, or the last ones one row longer: the last row of all, which may be
    shorter, lies in the last batch, and only that has fewer rows than streams.

    Returns:
        The sequences with `continues`, the order of the rows, and the stream of each row in it.
    """
    num_all = len(row_offsets) - 1
    used = np.arange(max(num_streams - num_all, 0), num_streams)  # the others have no row
    least, num_longer = divmod(num_all, max(len(used), 1))
    num_rows = least + (used >= num_streams - num_longer)
    stream_of = np.repeat(used, num_rows)
    step_of = expand_ranges(np.zeros(len(used), np.int64), num_rows)
    order = np.argsort(step_of * num_streams + stream_of, kind="stable")
    # pieces that go on from the row before, or in the next row, of their stream
    links = np.zeros(len(rows.indices), np.uint8)
    is_later = np.ones(num_all + 1, bool)
    is_later[to_offsets(num_rows)] = False
    later = row_offsets[:-1][is_later[:-1]]  # the first piece of every row but a stream's first
    if rows.piece_starts is not None:
        later = later[rows.piece_starts[later] > 0]
    links[later] |= FROM_BEFORE
    links[later - 1] |= INTO_NEXT
    return rows._replace(continues=links), order, stream_of[order]


def _fill_bins(rows: Rows, lengths: np.ndarray, capacity: int) -> tuple[Rows, np.ndarray]:
    """Return the rows bin by bin, within a bin in the given order, and where each bin begins."""
    by_length = length_order(lengths)
    bin_in_order = best_fit(lengths[by_length], capacity)
    bin_of = np.empty_like(bin_in_order)
    bin_of[by_length] = bin_in_order
    del by_length, bin_in_order  # frees 12 bytes per sequence for the sort below
    offsets = to_offsets(np.bincount(bin_of))
    return rows.take(np.argsort(bin_of, kind="stable")), offsets


def best_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Assign sequences to bins by best fit decreasing.

    Args:
        lengths: integers, longest first, none above capacity.
        capacity: maximum number of tokens in a bin.

    Returns:
        int32[N], the bin of each sequence; bins are numbered from 0 in the order they are opened.

    Raises:
        ValueError: the lengths are not longest first, or not from 1 to capacity.

    >>> best_fit(np.array([6, 5, 4, 3, 2]), 10).tolist()
    [0, 1, 0, 1, 1]
    """
    check_positive("capacity", capacity)
    if (lengths[1:] > lengths[:-1]).any():
        raise ValueError("expected lengths longest first")
    if len(lengths) and not 1 <= int(lengths[-1]) <= int(lengths[0]) <= capacity:
        raise ValueError(f"expected lengths from 1 to {capacity}")
    bin_of = np.empty(len(lengths), np.int32)
    ends = np.append(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1, len(lengths))
    open_bins = _OpenBins()
    num_bins = start = 0
    for end in ends.tolist():
        length = int(lengths[start]) if len(lengths) else 0
        while start < end:
            room = open_bins.find_room(length)
            if room is None:
                num_new = -(-(end - start) // (capacity // length))
                bins = np.arange(num_bins, num_bins + num_new, dtype=np.int32)
                num_bins += num_new
                room = capacity
            else:
                bins = open_bins.take(room, -(-(end - start) // (room // length)))
            start += _fill(open_bins, bins, room, length, bin_of[start:end])
    return bin_of


def _fill(
    open_bins: _OpenBins, bins: np.ndarray, room: int, length: int, bin_of: np.ndarray
) -> int:
    """Put sequences of equal length into bins with equal room; return how many were placed."""
    per_bin = min(room // length, len(bin_of))
    num_placed = min(len(bin_of), len(bins) * per_bin)
    bin_of[:num_placed] = np.repeat(bins, per_bin)[:num_placed]
    num_in_last = num_placed - (len(bins) - 1) * per_bin
    open_bins.put(room - per_bin * length, bins[:-1] if num_in_last < per_bin else bins)
    if num_in_last < per_bin:
        open_bins.put(room - num_in_last * length, bins[-1:])
    return num_placed


class _OpenBins:
    """Bins that are not full, grouped by free space; within a group, first in, first out."""

    def __init__(self) -> None:
        self._rooms: list[int] = []  # free spaces, ascending
        self._bins: dict[int, deque[np.ndarray]] = {}

    def find_room(self, length: int) -> int | None:
        """Return the smallest free space that holds length, None if no bin has room."""
        place = bisect_left(self._rooms, length)
        return self._rooms[place] if place < len(self._rooms) else None

    def take(self, room: int, num_bins: int) -> np.ndarray:
        """Remove and return up to num_bins of the bins with this much room."""
        waiting = self._bins[room]
        taken = []
        while waiting and num_bins > 0:
            bins = waiting.popleft()
            if len(bins) > num_bins:
                waiting.appendleft(bins[num_bins:])
                bins = bins[:num_bins]
            num_bins -= len(bins)
            taken.append(bins)
        if not waiting:
            del self._bins[room]
            del self._rooms[bisect_left(self._rooms, room)]
        return np.concatenate(taken)

    def put(self, room: int, bins: np.ndarray) -> None:
        """Add bins under the room that they have left; full bins are not kept."""
        if room == 0 or not len(bins):
            return
        if room not in self._bins:
            self._bins[room] = deque()
            insort(self._rooms, room)
        self._bins[room].append(bins)
