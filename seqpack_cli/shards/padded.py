"""The `padded` layout: a batch as one rectangle, rows padded on the right; the mask follows from
`lengths`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqpack_cli.shards.packed import check_lengths


@dataclass(frozen=True)
class PaddedBatch:
    """Sequences of one batch in one rectangle."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "widths", "data")

    ids: np.ndarray  # [B, width]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store

    @property
    def mask(self) -> np.ndarray:
        """True where a cell holds a token, bool[B, width]."""
        mask: np.ndarray = np.arange(self.ids.shape[1]) < self.lengths[:, None]
        return mask

    @classmethod
    def lay_out(
        cls, rows: Sequence[np.ndarray], original_indices: np.ndarray, *, pad_id: int
    ) -> PaddedBatch:
        """Pad rows to the longest of them."""
        return replace(pad(rows, padding_value=pad_id), original_indices=original_indices)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> PaddedBatch:
        """Make a batch of the flat arrays of ARRAYS.

        Raises:
            ValueError: the data is no rectangle of that width.
        """
        num_rows, width = len(arrays["lengths"]), int(arrays["widths"][0])
        if width < 1 or num_rows * width != len(arrays["data"]):
            raise ValueError(
                f"{num_rows} rows of width {width}, data has {len(arrays['data'])} cells"
            )
        ids = arrays["data"].reshape(num_rows, width)
        return cls(ids, arrays["lengths"], arrays["original_indices"])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the flat arrays of ARRAYS."""
        assert self.original_indices is not None  # noqa: S101 - laid out for a shard
        return {
            "lengths": self.lengths,
            "original_indices": self.original_indices,
            "widths": np.array(self.ids.shape[1:], np.int64),
            "data": self.ids.reshape(-1),
        }

    def rows(self) -> list[np.ndarray]:
        """Give the sequences, as `unpad` does."""
        return unpad(self)

    def row(self, index: int) -> np.ndarray:
        """Give one sequence of a batch that was checked."""
        row: np.ndarray = self.ids[index, : self.lengths[index]]
        return row

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError unless lengths fit the width and all padding is pad_id."""
        check_lengths(self.lengths)
        longest = int(self.lengths[0])
        if longest > self.ids.shape[1]:
            raise ValueError(f"the longest row has {longest} ids, width is {self.ids.shape[1]}")
        wrong = (self.ids != pad_id) & ~self.mask
        if wrong.any():
            row, cell = (int(places[0]) for places in np.nonzero(wrong))
            raise ValueError(
                f"row {row}: cell {cell} is padding and holds {self.ids[row, cell]}, "
                f"expected {pad_id}"
            )

    def count_padding(self) -> int:
        """Count the cells that hold no token."""
        return self.ids.size - int(self.lengths.sum())


def pad(
    sequences: Sequence[np.ndarray], *, padding_value: int = 0, width: int | None = None
) -> PaddedBatch:
    """Lay sequences out as the rows of a rectangle, as torch's `pad_sequence` does.

    Args:
        sequences: token ids, each [length], in any order.
        padding_value: fills the cells after each sequence.
        width: columns; None takes the longest sequence's length.

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
    longest = int(lengths.max())
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a sequence of {longest} ids is longer than width {width}")
    dtype = np.asarray(sequences[0]).dtype
    ids = np.full((len(sequences), width), padding_value, dtype)
    for row, sequence in enumerate(sequences):
        ids[row, : lengths[row]] = sequence
    return PaddedBatch(ids, lengths)


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
    return [row[:length] for row, length in zip(batch.ids, batch.lengths, strict=True)]
