"""Lay rows out time step by time step, as in torch's PackedSequence, for many batches at once.

Step t of a batch holds the ids of all rows longer than t, in row order. Where the same rows stay
alive for many steps, their ids are a rectangle to transpose, at 1.5 ns per id, and those of equal
batches are transposed together. Elsewhere the place of each id is computed, at 6 ns per id.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets

ALIASING = 512  # rows at this distance share a few lines of the cache: twice as slow …
GAP = 32  # … and not with these ids between them


def pack_batches(
    ids: np.ndarray, lengths: np.ndarray, batch_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lay many batches out at once, time step by time step.

    Args:
        ids: [S], row after row, batch after batch.
        lengths: int64[N], of the rows; longest first within each batch, none 0.
        batch_offsets: int64[batches + 1], the first row of each batch.

    Returns:
        data [S], batch_sizes int64[steps] and step_offsets int64[batches + 1], where the
        batch_sizes of each batch begin.

    >>> ids, lengths, batch_offsets = np.array([1, 2, 3, 9]), np.array([3, 1]), np.array([0, 2])
    >>> data, batch_sizes, _ = pack_batches(ids, lengths, batch_offsets)
    >>> data.tolist(), batch_sizes.tolist()
    ([1, 9, 2, 3], [2, 1, 1])
    """
    batch_sizes, step_offsets = count_steps(lengths, batch_offsets)
    starts = np.cumsum(lengths) - lengths
    data = np.empty_like(ids)
    for _ in iter_steps(ids, starts, batch_offsets, batch_sizes, step_offsets, data=data):
        pass
    return data, batch_sizes, step_offsets


def place_rows(lengths: np.ndarray, batch_offsets: np.ndarray) -> np.ndarray:
    """Return where each row should begin in the ids for `iter_steps` to be fast, int64[N + 1].

    The rows of a batch lie at equal distances, unless the gaps would take a fifth of the memory.
    The last number is that of all ids, those in gaps included.

    Args:
        lengths, batch_offsets: as for pack_batches.
    """
    num_rows = np.diff(batch_offsets)
    distances = lengths[batch_offsets[:-1]].astype(np.int64)
    distances += GAP * (distances % ALIASING == 0)
    is_dense = distances * num_rows * 4 <= np.add.reduceat(lengths, batch_offsets[:-1]) * 5
    return to_offsets(
        np.where(np.repeat(is_dense, num_rows), np.repeat(distances, num_rows), lengths)
    )


def count_steps(lengths: np.ndarray, batch_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the `batch_sizes` of many batches, concatenated, and where those of each batch begin.

    Args:
        lengths, batch_offsets: as for pack_batches.
    """
    longest = lengths[batch_offsets[:-1]]  # the first row's
    step_offsets = to_offsets(longest)
    last_steps = np.repeat(step_offsets[:-1], np.diff(batch_offsets)) + lengths - 1
    num_ending = np.bincount(last_steps, minlength=int(step_offsets[-1]))
    num_ended_before = np.cumsum(num_ending) - num_ending  # rows of all batches so far
    return np.repeat(batch_offsets[1:], longest) - num_ended_before, step_offsets


def count_alive(lengths: np.ndarray) -> np.ndarray:
    """Compute `batch_sizes` from lengths, longest first: how many rows are longer than each step.

    Applied to batch_sizes, it returns the lengths.

    >>> count_alive(np.array([3, 3, 1])).tolist()
    [3, 2, 2]
    """
    return count_steps(lengths, np.array([0, len(lengths)]))[0]


def iter_steps(
    ids: np.ndarray,
    starts: np.ndarray,
    batch_offsets: np.ndarray,
    batch_sizes: np.ndarray,
    step_offsets: np.ndarray,
    *,
    data: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield the data of many batches, in pieces of whole time steps.

    Args:
        ids: [S], the rows in any order.
        starts: int64[N], where each row begins in ids.
        batch_offsets, batch_sizes, step_offsets: as in pack_batches.
        data: [S], filled piece by piece; None allocates each piece.
    """
    num_steps = np.diff(step_offsets)
    steps = np.arange(len(batch_sizes)) - np.repeat(step_offsets[:-1], num_steps)
    first_rows = np.repeat(batch_offsets[:-1], num_steps)
    distances = np.diff(starts)
    bends = np.flatnonzero(distances[1:] != distances[:-1]) + 1
    ends = np.cumsum(batch_sizes)
    first = 0
    while first < len(batch_sizes):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + LIMITS.ids_per_piece, "right")), first + 1)
        piece, end = slice(first, last), int(ends[last - 1])
        taken = np.empty(end - done, ids.dtype) if data is None else data[done:end]
        some = steps[piece], first_rows[piece], batch_sizes[piece]
        runs = _find_runs(starts, bends, *some, most=len(taken) // LIMITS.ids_per_run)
        if runs is not None and len(taken) >= LIMITS.ids_per_copy * int(runs[-1].sum()):
            _turn_runs(ids, starts, runs, taken)
        else:
            _take_steps(ids, starts, *some, taken)
        yield taken
        first = last


def _find_runs(
    starts: np.ndarray,
    bends: np.ndarray,
    steps: np.ndarray,
    first_rows: np.ndarray,
    alive: np.ndarray,
    *,
    most: int,
) -> np.ndarray | None:
    """Find the runs of steps in which the same rows are alive; of equal batches, one for all.

    Args:
        bends: the rows whose distance to the next differs from that before.
        steps, first_rows, alive: the step of its batch, the first row and the rows alive of each.
        most: return None if there are more runs, before those of equal batches are joined.

    Returns:
        int64[7, runs]: number of batches, steps and rows, first row, first id, the distance between
        rows or -1 if there are several, and how many copies the run takes.
    """
    is_same = (first_rows[1:] == first_rows[:-1]) & (alive[1:] == alive[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(~is_same) + 1])
    if len(firsts) > most:
        return None
    num_steps = np.diff(firsts, append=len(alive))
    rows, num_rows = first_rows[firsts], alive[firsts]
    last_rows = rows + num_rows - 1
    origins = starts[rows]
    is_even = bends.searchsorted(last_rows - 1, "right") <= bends.searchsorted(rows, "right")
    distances = (starts[last_rows] - origins) // np.maximum(num_rows - 1, 1)
    distances[~is_even] = -1
    origins += steps[firsts]
    sizes = np.stack([num_steps, num_rows, distances])
    goes_on = is_even[1:] & (sizes[:, 1:] == sizes[:, :-1]).all(0)
    goes_on &= np.diff(origins) == (num_rows * distances)[:-1]
    kept = np.concatenate([[0], np.flatnonzero(~goes_on) + 1])
    num_batches = np.diff(kept, append=len(firsts))
    num_copies = np.where(is_even, 1, num_rows // 4 + 1)
    found = np.stack([*sizes[:2], rows, origins, distances, num_copies])
    return np.stack([num_batches, *found[:, kept]])


def _turn_runs(ids: np.ndarray, starts: np.ndarray, runs: np.ndarray, taken: np.ndarray) -> None:
    """Transpose the rows of runs, as rectangles, one after another."""
    done, size = 0, ids.itemsize
    for num_batches, num_steps, num_rows, row, origin, distance, _ in runs.T.tolist():
        shape = num_batches, num_rows, num_steps
        if distance < 0:
            begins = starts[row : row + num_rows] + (origin - starts[row])
            block = np.stack([ids[begin : begin + num_steps] for begin in begins.tolist()])[None]
        else:
            strides = num_rows * distance * size, distance * size, size
            block = np.ndarray(shape, ids.dtype, ids, origin * size, strides)
        end = done + num_batches * num_steps * num_rows
        taken[done:end].reshape(num_batches, num_steps, num_rows)[:] = block.swapaxes(1, 2)
        done = end


def _take_steps(
    ids: np.ndarray,
    starts: np.ndarray,
    steps: np.ndarray,
    first_rows: np.ndarray,
    alive: np.ndarray,
    taken: np.ndarray,
) -> None:
    """Gather the ids of some time steps through their places, at about 6 ns each."""
    ends = np.cumsum(alive)
    begins = ends - alive
    cuts = np.flatnonzero(np.diff(ends // LIMITS.entries_in_cache)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(alive)]):
        block, begin, end = slice(first, last), begins[first], ends[last - 1]
        rows = np.arange(begin, end)
        rows += np.repeat((first_rows - begins)[block], alive[block])
        places = starts.take(rows, mode="clip")
        places += np.repeat(steps[block], alive[block])
        ids.take(places, out=taken[begin:end], mode="clip")
