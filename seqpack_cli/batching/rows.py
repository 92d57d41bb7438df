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
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from seqpack_cli.batching.options import ResolvedOptions
from seqpack_cli.batching.order import ROWS, Rows, length_order, shuffled
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
            rows = _cut_long(rows, capacity)
        rounded = round_up(rows.lengths, options.align_sequences)
        if options.fill == "sequential":
            offsets = cut_rows([rounded], len(rounded), capacity)
        else:
            bin_of = best_fit(rounded, capacity)
            offsets = to_offsets(np.bincount(bin_of))
            rows = rows.take(np.argsort(bin_of, kind="stable"))
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
    cuts = np.arange(0, begins[-1], capacity)
    pieces = _cut_pieces(rows, cuts[begins[np.searchsorted(begins, cuts)] != cuts])
    return pieces, np.searchsorted(to_offsets(pieces.lengths), np.append(cuts, begins[-1]))


def _cut_long(rows: Rows, capacity: int) -> Rows:
    """Cut each sequence after every so many tokens of its own."""
    num_cuts = (rows.lengths - 1) // capacity
    places = expand_ranges(np.ones_like(rows.indices), num_cuts)  # of cuts in their sequence
    begins = np.repeat(to_offsets(rows.lengths)[:-1], num_cuts)
    return _cut_pieces(rows, begins + places * capacity)


def _cut_pieces(rows: Rows, cuts: np.ndarray) -> Rows:
    """Cut rows inside sequences, at ascending numbers of tokens counted through all of them."""
    begins = to_offsets(rows.lengths)
    # both ascend, so a stable sort only merges them
    starts = np.sort(np.concatenate([begins[:-1], cuts]), kind="stable")
    lengths = np.diff(starts, append=begins[-1]).astype(np.int32)
    is_first = np.ones(len(starts), bool)
    is_first[np.searchsorted(starts, cuts)] = False
    number = np.cumsum(is_first) - 1  # of its sequence
    starts -= begins[number]
    return Rows(rows.indices[number], lengths, starts.astype(np.int32))


def round_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Round lengths up to a multiple, as int64; lengths themselves if the multiple is 1."""
    if multiple == 1:
        return lengths
    rounded: np.ndarray = -(-lengths.astype(np.int64) // multiple) * multiple
    return rounded


def cut_rows(
    sides: Sequence[np.ndarray], most_rows: int, max_tokens: int, *, padded: bool = False
) -> np.ndarray:
    """Cut sequences or pairs into runs, in the given order, at 0.1 us for each.

    Args:
        sides: integers, one per sequence, of each side.
        most_rows: of a run.
        max_tokens: most tokens of a run; of padded ones most cells, rows x longest. Of pairs, the
            tokens of either side, or the cells of both together.

    Returns:
        int64[runs + 1], the first of each run and the number of sequences.
    """
    starts, start = array("q"), -most_rows
    first = second = 0  # of the run, tokens or the longest of each side
    lengths, *others = map(_iter_integers, sides)
    if others:
        for row, (length, other) in enumerate(zip(lengths, *others, strict=True)):
            if padded:
                first, second = max(first, length), max(second, other)
                cost = (first + second) * (row - start + 1)
            else:
                first, second = first + length, second + other
                cost = max(first, second)
            if cost > max_tokens or row - start == most_rows:
                start, first, second = row, length, other
                starts.append(row)
    elif padded:
        for row, length in enumerate(lengths):
            if length > first:
                first = length
            if first * (row - start + 1) > max_tokens or row - start == most_rows:
                start, first = row, length
                starts.append(row)
    else:
        for row, length in enumerate(lengths):
            first += length
            if first > max_tokens or row - start == most_rows:
                start, first = row, length
                starts.append(row)
    starts.append(len(sides[0]))
    return np.frombuffer(starts, np.int64)


def _iter_integers(values: np.ndarray) -> Iterator[int]:
    blocks = range(0, len(values), LIMITS.sequences_per_block)
    return chain.from_iterable(
        values[start : start + LIMITS.sequences_per_block].tolist() for start in blocks
    )


def _deal_streams(
    rows: Rows, row_offsets: np.ndarray, num_streams: int
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Deal rows to streams: row t of each stream, then row t + 1 of each.

    Streams are equally long, or the last ones one row longer: the last row of all, which may be
    shorter, lies in the last batch, and only that has fewer rows than streams.

    Returns:
        The sequences with `continues`, the order of the rows, and the stream of each row in it.
    """
    num_all, streams = len(row_offsets) - 1, np.arange(num_streams)
    num_rows = num_all // num_streams + (streams >= num_streams - num_all % num_streams)
    stream_of = np.repeat(streams, num_rows)
    step_of = expand_ranges(0, num_rows)
    order = np.argsort(step_of, kind="stable")
    # pieces that go on from the row before, or in the next row, of their stream
    links = np.zeros(len(rows.indices), np.uint8)
    later = row_offsets[:-1][step_of > 0]  # the first piece of every row but a stream's first
    if rows.piece_starts is not None:
        later = later[rows.piece_starts[later] > 0]
    links[later] |= FROM_BEFORE
    links[later - 1] |= INTO_NEXT
    return rows._replace(continues=links), order, stream_of[order]


def best_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Assign sequences to bins by best fit decreasing.

    Args:
        lengths: integers from 1 to capacity.
        capacity: maximum number of tokens in a bin.

    Returns:
        int32[N], the bin of each sequence; bins are numbered from 0 in the order they are opened.

    >>> best_fit(np.array([6, 5, 4, 3, 2]), 10).tolist()
    [0, 1, 0, 1, 1]
    """
    bin_of, order = np.empty(len(lengths), np.int32), length_order(lengths)
    lengths = lengths[order]
    ends = np.append(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1, len(lengths))
    rooms = list[int]()  # free spaces, ascending
    open_bins = dict[int, deque[np.ndarray]]()  # by free space; first in, first out
    num_bins = start = 0
    for end in ends.tolist():
        while start < end:
            length = int(lengths[start])
            place = bisect_left(rooms, length)
            room = rooms[place] if place < len(rooms) else capacity
            per_bin = min(room // length, end - start)
            needed = -(-(end - start) // per_bin)
            if place < len(rooms):
                waiting = open_bins[room]
                bins = waiting.popleft()
                if len(bins) > needed:
                    waiting.appendleft(bins[needed:])
                elif not waiting:
                    del open_bins[room], rooms[place]
                bins = bins[:needed]
            else:
                bins = np.arange(num_bins, num_bins + needed, dtype=np.int32)
                num_bins += needed
            num_placed = min(end - start, len(bins) * per_bin)
            placed = order[start : start + num_placed]
            bin_of[placed] = np.repeat(bins, per_bin)[:num_placed]
            start += num_placed
            num_filled, num_in_last = divmod(num_placed, per_bin)
            for left, some in (
                (room - per_bin * length, bins[:num_filled]),
                (room - num_in_last * length, bins[num_filled:]),
            ):
                if left and len(some):
                    if left not in open_bins:
                        open_bins[left] = deque()
                        insort(rooms, left)
                    open_bins[left].append(some)
    return bin_of
