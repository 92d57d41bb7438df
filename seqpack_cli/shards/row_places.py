"""Where sequences lie that share rows: in one unpadded row, or in rows of one length.

A rectangle of N rows of L cells is stored row after row. Within a row, sequences follow each other
from its first cell; each takes its length, rounded up to a multiple, and padding fills the rest.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.rows import round_up
from seqpack_cli.ranges import expand_ranges
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Tensors


def place_in_rows(lengths: np.ndarray, row_indices: np.ndarray) -> np.ndarray:
    """Return where each sequence begins in its own row, int64[N].

    Args:
        lengths: cells that each takes.
        row_indices: the row of each, ascending; neighbours with the same one share it.

    >>> place_in_rows(np.array([2, 3, 4]), np.array([0, 0, 1])).tolist()
    [0, 2, 0]
    """
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    firsts = begins.copy()
    firsts[1:] *= row_indices[1:] != row_indices[:-1]  # of the first sequence of a row, else 0
    places: np.ndarray = begins - np.maximum.accumulate(firsts)
    return places


def find_starts(tensors: Tensors, geometry: Geometry) -> np.ndarray:
    """Return where in the rectangles of a valid shard each sequence begins, int64[rows]."""
    offsets = tensors["sequence_offsets"]
    bases = np.repeat(tensors["data_offsets"][:-1], np.diff(offsets))
    if geometry.num_rows is not None:
        bases = bases + tensors["row_indices"] * geometry.row_length
    rounded = round_up(tensors["lengths"], geometry.multiple)
    starts: np.ndarray = bases + place_in_rows(rounded, bases)
    return starts


def find_padding(num_cells: int, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the cells that no sequence covers, int64[N], ascending.

    Args:
        starts: ascending, without overlap.
    """
    begins, num_empty = np.zeros((2, len(starts) + 1), np.int64)
    np.add(starts, lengths, out=begins[1:])
    num_empty[:-1], num_empty[-1] = starts, num_cells
    num_empty -= begins
    return expand_ranges(begins, num_empty)


def mark_tokens(num_cells: int, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the mask of the cells that the sequences cover, bool[num_cells].

    Args:
        starts: ascending, without overlap.
    """
    runs = np.zeros(2 * len(starts) + 1, np.int64)  # gap, sequence, gap, ..., gap
    ends = starts + lengths
    runs[1::2] = lengths
    runs[2::2] = np.append(starts[1:], num_cells)[: len(starts)] - ends
    runs[0] = starts[0] if len(starts) else num_cells
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def find_wrong_rows(tensors: Tensors, wrong: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Find the batches whose sequences do not fit their rows, bool[batches].

    Args:
        wrong: batches that already failed, with lengths that may be anything.
    """
    offsets = tensors["sequence_offsets"]
    batch_of = np.repeat(np.arange(len(wrong)), np.diff(offsets))
    sizes = np.diff(tensors["data_offsets"])
    # cut to at most size + 1, so that sums cannot wrap around
    lengths = np.clip(tensors["lengths"], 0, sizes[batch_of] + 1)
    lengths = round_up(lengths, geometry.multiple)
    found: np.ndarray = wrong.copy()
    if geometry.num_rows is None:
        found |= np.add.reduceat(lengths, offsets[:-1]) != sizes
        return found
    num_rows, left = np.divmod(sizes, geometry.row_length)
    found |= (left != 0) | (num_rows > geometry.num_rows)
    rows = tensors["row_indices"]
    is_wrong = (rows < 0) | (rows >= num_rows[batch_of])
    is_same = batch_of[1:] == batch_of[:-1]
    is_wrong[1:] |= is_same & (rows[1:] < rows[:-1])
    found[batch_of[is_wrong]] = True
    is_first = np.append(True, ~is_same | (rows[1:] != rows[:-1]))
    firsts = np.flatnonzero(is_first)
    too_long = np.add.reduceat(lengths, firsts) > geometry.row_length
    found[batch_of[firsts[too_long]]] = True
    return found


def find_wrong_padding(
    tensors: Tensors, wrong: np.ndarray, geometry: Geometry, data: np.ndarray
) -> np.ndarray:
    """Find the batches with a padding cell that does not hold pad_id, bool[batches].

    Args:
        wrong: batches that already failed, which are left out.
        data: the cells, row after row.
    """
    batch_of = np.repeat(np.arange(len(wrong)), np.diff(tensors["sequence_offsets"]))
    sound = ~wrong[batch_of]
    lengths = np.where(sound, tensors["lengths"], 0)  # others could have any sum
    starts = find_starts({**tensors, "lengths": lengths}, geometry)[sound]
    is_token = mark_tokens(len(data), starts, lengths[sound])
    places = np.flatnonzero(~is_token & (data != geometry.pad_id))
    found = np.zeros(len(wrong), bool)
    found[np.searchsorted(tensors["data_offsets"], places, "right") - 1] = True
    found &= ~wrong
    return found
