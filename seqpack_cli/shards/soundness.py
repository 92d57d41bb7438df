"""Which batches of a shard hold together, found for all of them at once.

What each layout's `check` demands of one batch, as a few operations on the arrays of a whole shard:
2 ns a token instead of 50 microseconds a batch. Who finds a batch here asks its `check` for words.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqpack_cli.ranges import expand_ranges

CELLS_PER_BLOCK = 1 << 20  # of padding looked at together; their places take 8 bytes each


def find_unsound(
    layout: str,
    tensors: Mapping[str, np.ndarray],
    *,
    pad_id: int,
    padding_side: str,
    max_id: int,
) -> np.ndarray:
    """Find the batches that break a rule of their layout, bool[batches].

    Args:
        tensors: of a shard whose offsets were checked.
        max_id: the largest id there may be.
    """
    wrong = find_unsound_index(layout, tensors)
    if layout == "padded":
        batch_of = _number_rows(tensors)
        wrong |= _find_wrong_padding(tensors, batch_of, wrong, pad_id, padding_side)
    data = tensors["data"]
    if not 0 <= int(data.min()) <= int(data.max()) <= max_id:
        starts = tensors["data_offsets"][:-1]
        wrong |= np.minimum.reduceat(data, starts) < 0
        wrong |= np.maximum.reduceat(data, starts).astype(np.int64) > max_id
    return wrong


def find_unsound_index(layout: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Find the batches whose arrays do not belong together, whatever their ids, bool[batches].

    Args:
        tensors: of a shard whose offsets were checked; `data` is not looked at.
    """
    counts = np.diff(tensors["sequence_offsets"])
    lengths, sizes = tensors["lengths"], np.diff(tensors["data_offsets"])
    batch_of = _number_rows(tensors)
    wrong = _find_wrong_lengths(layout, tensors, counts, batch_of)
    if layout == "padded":
        wrong |= _find_wrong_rectangles(tensors, counts, sizes)
        return wrong
    # lengths of at most size each, so that their sum can not wrap around
    limited = np.minimum(lengths, sizes[batch_of] + 1)
    wrong |= np.add.reduceat(limited, tensors["sequence_offsets"][:-1]) != sizes
    if layout == "packed":
        wrong |= _find_wrong_steps(tensors, batch_of, wrong)
    return wrong


def _number_rows(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Give the batch of each row."""
    counts = np.diff(tensors["sequence_offsets"])
    return np.repeat(np.arange(len(counts)), counts)


def _find_wrong_lengths(
    layout: str, tensors: Mapping[str, np.ndarray], counts: np.ndarray, batch_of: np.ndarray
) -> np.ndarray:
    """Empty rows that are no filler, full ones that are, rows longer than the one before."""
    lengths = tensors["lengths"]
    wrong = np.zeros(len(counts), bool)
    num_filler_rows = tensors.get("num_filler_rows")
    if num_filler_rows is None:
        wrong[batch_of[lengths < 1]] = True
    else:
        wrong |= (num_filler_rows < 0) | (num_filler_rows >= counts)
        first_fillers = tensors["sequence_offsets"][1:] - num_filler_rows
        is_filler = np.arange(len(lengths)) >= first_fillers[batch_of]
        wrong[batch_of[(lengths < 1) != is_filler]] = True
        wrong[batch_of[is_filler & (lengths != 0)]] = True
        wrong[batch_of[is_filler & (tensors["original_indices"] != -1)]] = True
    if layout != "varlen":
        rises = (lengths[1:] > lengths[:-1]) & (batch_of[1:] == batch_of[:-1])
        wrong[batch_of[1:][rises]] = True
    return wrong


def _find_wrong_rectangles(
    tensors: Mapping[str, np.ndarray], counts: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    widths = tensors["widths"]
    longest = np.maximum.reduceat(tensors["lengths"], tensors["sequence_offsets"][:-1])
    # a width beyond the cells is refused first, so that the product can not wrap around
    fits = (widths >= 1) & (widths <= sizes) & (longest <= widths)
    wrong: np.ndarray = ~fits | (np.where(fits, widths, 0) * counts != sizes)
    return wrong


def _find_wrong_steps(
    tensors: Mapping[str, np.ndarray], batch_of: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """`batch_sizes` fall, from each step to the next, by the rows that end there, and to 0."""
    lengths, found = tensors["lengths"], tensors["batch_sizes"]
    step_offsets = tensors["step_offsets"]
    num_steps = np.diff(step_offsets)
    wrong: np.ndarray = known | (lengths[tensors["sequence_offsets"][:-1]] != num_steps)
    sound = ~wrong[batch_of]
    last_steps = (step_offsets[:-1][batch_of] + lengths)[sound] - 1
    num_ending = np.bincount(last_steps, minlength=len(found))
    after = np.append(found[1:], 0)
    after[step_offsets[1:] - 1] = 0
    steps_of = np.repeat(np.arange(len(num_steps)), num_steps)
    # not as a difference, which could wrap around
    wrong[steps_of[found != after + num_ending]] = True
    return wrong


def _find_wrong_padding(
    tensors: Mapping[str, np.ndarray],
    batch_of: np.ndarray,
    known: np.ndarray,
    pad_id: int,
    padding_side: str,
) -> np.ndarray:
    """Cells that hold no token hold something else than pad_id."""
    wrong = np.zeros(len(known), bool)
    rows = np.flatnonzero(~known[batch_of])
    widths = tensors["widths"][batch_of]
    first_rows = tensors["sequence_offsets"][batch_of]
    starts = tensors["data_offsets"][batch_of] + (np.arange(len(batch_of)) - first_rows) * widths
    lengths = tensors["lengths"]
    if padding_side == "right":
        starts = starts + lengths
    num_cells = widths[rows] - lengths[rows]
    blocks = np.cumsum(num_cells) // CELLS_PER_BLOCK
    for block in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(blocks)) + 1):
        cells = tensors["data"][expand_ranges(starts[rows[block]], num_cells[block])]
        if (cells != pad_id).any():
            row_of = np.repeat(rows[block], num_cells[block])
            wrong[batch_of[row_of[cells != pad_id]]] = True
    return wrong
