"""Sequences -> one batch and back: torch's functions that pack and pad, on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqpack_cli.errors import check_choice
from seqpack_cli.ranges import copy_ranges
from seqpack_cli.runs.options import convert
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.time_steps import (
    check_batch_sizes,
    check_lengths,
    count_alive,
    pack_batches,
)


def pack_sequence(sequences: Sequence[np.ndarray]) -> PackedBatch:
    """Lay sequences out time step by time step, as torch's `pack_sequence` does.

    Args:
        sequences: token ids, each [length], longest first, none empty.

    Returns:
        data [S] in the dtype of the first, batch_sizes int64[T], lengths int64[B].

    Raises:
        TypeError: ids are not integers.
        ValueError: there is no sequence, one is empty, one is longer than the one before it, or has
            an id that the first one's dtype cannot hold.

    >>> batch = pack_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> batch.data.tolist(), batch.batch_sizes.tolist()
    ([1, 9, 2, 3], [2, 1, 1])
    """
    return pack_ids(*_join(sequences))


def pack_ids(ids: np.ndarray, lengths: np.ndarray) -> PackedBatch:
    """Pack sequences that lie one after another, as `pack_sequence` does.

    Args:
        ids: [S].
        lengths: int64[B], at least one, longest first, none 0.
    """
    check_lengths(lengths)
    data, batch_sizes, _ = pack_batches(ids, lengths, np.array([0, len(lengths)]))
    return PackedBatch(data, batch_sizes, lengths)


def unpack_sequence(packed_sequences: PackedBatch) -> list[np.ndarray]:
    """Return the sequences of a packed batch in row order; the inverse of `pack_sequence`.

    Raises:
        ValueError: batch_sizes rise, or do not add up to the data.

    >>> batch = pack_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> [row.tolist() for row in unpack_sequence(batch)]
    [[1, 2, 3], [9]]
    """
    packed: PackedBatch = convert("packed_sequences", packed_sequences, PackedBatch)
    for name in ("data", "batch_sizes"):
        convert(f"packed_sequences.{name}", getattr(packed, name), np.ndarray)
    check_batch_sizes(packed.batch_sizes, num_ids=len(packed.data))
    steps = np.cumsum(packed.batch_sizes) - packed.batch_sizes
    lengths = count_alive(packed.batch_sizes)  # the same relation, read the other way
    return [packed.data[steps[:length] + row] for row, length in enumerate(lengths)]


def pad_sequence(
    sequences: Sequence[np.ndarray],
    *,
    padding_value: int = 0,
    total_length: int | None = None,
    padding_side: str = "right",
) -> PaddedBatch:
    """Lay sequences out as the rows of a rectangle, as torch's `pad_sequence` does.

    Args:
        sequences: token ids, each [length], in any order.
        padding_value: fills the other cells of each row.
        total_length: columns of the rectangle; None is the longest sequence's length.
        padding_side: "right" or "left": where the padding of each row is.

    Returns:
        ids [B, total_length] in the dtype of the first, lengths int64[B].

    Raises:
        TypeError: ids are not integers.
        ValueError: there is no sequence, one is longer than total_length, the ids' dtype cannot
            hold padding_value or an id, or padding_side is neither "right" nor "left".

    >>> pad_sequence([np.array([1, 2, 3]), np.array([9])]).ids.tolist()
    [[1, 2, 3], [9, 0, 0]]
    """
    ids, lengths = _join(sequences)
    width = convert("total_length", total_length, int | None)
    return pad_ids(
        ids,
        lengths,
        total_length=int(lengths.max()) if width is None else width,
        padding_value=convert("padding_value", padding_value, int),
        padding_side=padding_side,
    )


def pad_ids(
    ids: np.ndarray,
    lengths: np.ndarray,
    *,
    total_length: int,
    padding_value: int,
    padding_side: str,
) -> PaddedBatch:
    """Pad sequences that lie one after another, as `pad_sequence` does.

    Args:
        ids: [S].
        lengths: int64[B], at least one.
    """
    check_choice("padding_side", padding_side, ("right", "left"))
    longest = int(lengths.max())
    if longest > total_length:
        raise ValueError(f"a sequence of {longest} ids is longer than total_length {total_length}")
    check_padding_value(padding_value, ids.dtype)
    cells = np.full(len(lengths) * total_length, padding_value, ids.dtype)
    begins = np.arange(len(lengths)) * total_length
    if padding_side == "left":
        begins = begins + total_length - lengths
    copy_ranges(ids, np.cumsum(lengths) - lengths, cells, begins, lengths)
    return PaddedBatch(
        cells.reshape(len(lengths), total_length), lengths, padding_side=padding_side
    )


def unpad_sequence(padded_sequences: PaddedBatch) -> list[np.ndarray]:
    """Return the sequences of a padded batch in row order; the inverse of `pad_sequence`.

    Raises:
        ValueError: a length is negative or above the width.

    >>> batch = pad_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> [row.tolist() for row in unpad_sequence(batch)]
    [[1, 2, 3], [9]]
    """
    padded: PaddedBatch = convert("padded_sequences", padded_sequences, PaddedBatch)
    for name in ("ids", "lengths"):
        convert(f"padded_sequences.{name}", getattr(padded, name), np.ndarray)
    width = padded.ids.shape[1]
    if len(padded.lengths) != len(padded.ids):
        raise ValueError(f"{len(padded.lengths)} lengths for {len(padded.ids)} rows")
    if len(padded.lengths) and not 0 <= padded.lengths.min() <= padded.lengths.max() <= width:
        raise ValueError(f"a length is not from 0 to the width {width}")
    return [padded.row(row) for row in range(len(padded.lengths))]


def check_padding_value(value: int, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if ids of a dtype cannot hold a padding value."""
    if not _fits(value, dtype):
        raise ValueError(f"padding_value is {value}, the ids are {dtype}")


def _fits(value: int, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of integers can hold a value."""
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def _join(sequences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all sequences one after another, and their lengths, int64[B]."""
    rows = [np.asarray(sequence) for sequence in sequences]
    if not rows:
        raise ValueError("expected at least one sequence")
    dtype = rows[0].dtype
    for number, row in enumerate(rows):
        if row.ndim != 1:
            raise ValueError(f"sequence {number} has shape {row.shape}, expected [length]")
        if row.dtype.kind not in "iu":
            raise TypeError(f"sequence {number} is {row.dtype}, expected integers")
        if row.dtype != dtype and len(row):  # concatenate would let an id wrap around
            outside = [one for one in (int(row.min()), int(row.max())) if not _fits(one, dtype)]
            if outside:
                raise ValueError(f"sequence {number} has id {outside[0]}, sequence 0 is {dtype}")
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.concatenate(rows, dtype=dtype, casting="unsafe"), lengths
