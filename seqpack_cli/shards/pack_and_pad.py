"""Sequences -> one batch and back: torch's functions that pack and pad, on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.ranges import copy_ranges
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.time_steps import (
    check_batch_sizes,
    check_lengths,
    count_alive,
    pack_batches,
)


def pack(sequences: Sequence[np.ndarray]) -> PackedBatch:
    """Lay sequences out time step by time step, as torch's `pack_sequence` does.

    Args:
        sequences: token ids, each [length], longest first, none empty.

    Returns:
        data [S] in the dtype of the first, batch_sizes int64[T], lengths int64[B].

    Raises:
        ValueError: there is none, one is empty, or one is longer than the one before it.

    >>> batch = pack([np.array([1, 2, 3]), np.array([9])])
    >>> batch.data.tolist(), batch.batch_sizes.tolist()
    ([1, 9, 2, 3], [2, 1, 1])
    """
    if not len(sequences):
        raise ValueError("expected at least one sequence")
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    return pack_ids(np.concatenate(sequences, dtype=np.asarray(sequences[0]).dtype), lengths)


def pack_ids(ids: np.ndarray, lengths: np.ndarray) -> PackedBatch:
    """Do what `pack` does with sequences that lie one after another.

    Args:
        ids: [S].
        lengths: int64[B], at least one, longest first, none 0.
    """
    check_lengths(lengths)
    data, batch_sizes, _ = pack_batches(ids, lengths, np.array([0, len(lengths)]))
    return PackedBatch(data, batch_sizes, lengths)


def unpack(batch: PackedBatch) -> list[np.ndarray]:
    """Give the sequences of a packed batch back, in its row order; the inverse of `pack`.

    Raises:
        ValueError: batch_sizes rise, or do not add up to the data.

    >>> [row.tolist() for row in unpack(pack([np.array([1, 2, 3]), np.array([9])]))]
    [[1, 2, 3], [9]]
    """
    check_batch_sizes(batch.batch_sizes, num_ids=len(batch.data))
    steps = np.cumsum(batch.batch_sizes) - batch.batch_sizes
    lengths = count_alive(batch.batch_sizes)  # the same relation, read the other way
    return [batch.data[steps[:length] + row] for row, length in enumerate(lengths)]


def pad(
    sequences: Sequence[np.ndarray],
    *,
    padding_value: int = 0,
    width: int | None = None,
    padding_side: str = "right",
) -> PaddedBatch:
    """Lay sequences out as the rows of a rectangle, as torch's `pad_sequence` does.

    Args:
        sequences: token ids, each [length], in any order.
        padding_value: fills the other cells of each row.
        width: columns; None takes the longest sequence's length.
        padding_side: "right" of each sequence, or "left".

    Returns:
        ids [B, width] in the dtype of the first, lengths int64[B].

    Raises:
        ValueError: there is no sequence, or one is longer than width.

    >>> pad([np.array([1, 2, 3]), np.array([9])]).ids.tolist()
    [[1, 2, 3], [9, 0, 0]]
    """
    if not len(sequences):
        raise ValueError("expected at least one sequence")
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    ids = np.concatenate(sequences, dtype=np.asarray(sequences[0]).dtype)
    width = int(lengths.max()) if width is None else width
    return pad_ids(
        ids, lengths, width=width, padding_value=padding_value, padding_side=padding_side
    )


def pad_ids(
    ids: np.ndarray, lengths: np.ndarray, *, width: int, padding_value: int, padding_side: str
) -> PaddedBatch:
    """Do what `pad` does with sequences that lie one after another.

    Args:
        ids: [S].
        lengths: int64[B], at least one.
    """
    longest = int(lengths.max())
    if longest > width:
        raise ValueError(f"a sequence of {longest} ids is longer than width {width}")
    cells = np.full(len(lengths) * width, padding_value, ids.dtype)
    begins = np.arange(len(lengths)) * width
    if padding_side == "left":
        begins = begins + width - lengths
    copy_ranges(ids, np.cumsum(lengths) - lengths, cells, begins, lengths)
    return PaddedBatch(cells.reshape(-1, width), lengths, padding_side=padding_side)


def unpad(batch: PaddedBatch) -> list[np.ndarray]:
    """Give the sequences of a padded batch back, in row order; the inverse of `pad`.

    Raises:
        ValueError: a length is negative or above the width.

    >>> [row.tolist() for row in unpad(pad([np.array([1, 2, 3]), np.array([9])]))]
    [[1, 2, 3], [9]]
    """
    width = batch.ids.shape[1]
    if len(batch.lengths) != len(batch.ids):
        raise ValueError(f"{len(batch.lengths)} lengths for {len(batch.ids)} rows")
    if len(batch.lengths) and not 0 <= batch.lengths.min() <= batch.lengths.max() <= width:
        raise ValueError(f"a length is not from 0 to the width {width}")
    return [batch.row(row) for row in range(len(batch.lengths))]
