"""The `padded` layout: a batch as one rectangle, rows padded on the right or on the left; the mask
follows from `lengths`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqpack_cli.ranges import copy_ranges
from seqpack_cli.shards.packed import check_lengths


@dataclass(frozen=True)
class PaddedBatch:
    """Sequences of one batch in one rectangle."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("lengths", "original_indices", "widths", "data")

    ids: np.ndarray  # [B, width]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    padding_side: str = "right"
    num_filler_rows: int = 0  # the last rows, of length 0 and original index -1

    @property
    def mask(self) -> np.ndarray:
        """True where a cell holds a token, bool[B, width]."""
        width = self.ids.shape[1]
        mask: np.ndarray = np.arange(width) < self.lengths[:, None]
        return mask[:, ::-1] if self.padding_side == "left" else mask

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], *, padding_side: str) -> PaddedBatch:
        """Make a batch of the flat arrays of ARRAYS.

        Raises:
            ValueError: the data is no rectangle of that width, or has more fillers than rows.
        """
        num_rows, width = len(arrays["lengths"]), int(arrays["widths"][0])
        if width < 1 or num_rows * width != len(arrays["data"]):
            raise ValueError(
                f"{num_rows} rows of width {width}, data has {len(arrays['data'])} cells"
            )
        num_filler_rows = int(arrays["num_filler_rows"][0]) if "num_filler_rows" in arrays else 0
        if not 0 <= num_filler_rows < num_rows:
            raise ValueError(f"{num_filler_rows} filler rows of {num_rows} rows")
        ids = arrays["data"].reshape(num_rows, width)
        lengths, indices = arrays["lengths"], arrays["original_indices"]
        return cls(ids, lengths, indices, padding_side, num_filler_rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give the flat arrays of ARRAYS."""
        assert self.original_indices is not None  # noqa: S101 - laid out for a shard
        return {
            "lengths": self.lengths,
            "original_indices": self.original_indices,
            "widths": np.array(self.ids.shape[1:], np.int64),
            "data": self.ids.reshape(-1),
        }

    def without_filler(self) -> PaddedBatch:
        """Give the rows that hold sequences."""
        if not self.num_filler_rows:
            return self
        kept = slice(0, len(self.lengths) - self.num_filler_rows)
        assert self.original_indices is not None  # noqa: S101 - only shards have filler rows
        return replace(
            self,
            ids=self.ids[kept],
            lengths=self.lengths[kept],
            original_indices=self.original_indices[kept],
            num_filler_rows=0,
        )

    def rows(self) -> list[np.ndarray]:
        """Give the sequences, as `unpad` does."""
        return unpad(self)

    def row(self, index: int) -> np.ndarray:
        """Give one sequence of a batch that was checked."""
        width, length = self.ids.shape[1], self.lengths[index]
        start = width - length if self.padding_side == "left" else 0
        row: np.ndarray = self.ids[index, start : start + length]
        return row

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError unless lengths fit the width and all padding is pad_id."""
        self._check_filler()
        check_lengths(self.lengths[: len(self.lengths) - self.num_filler_rows])
        longest = int(self.lengths[0])
        if longest > self.ids.shape[1]:
            raise ValueError(f"the longest row has {longest} ids, width is {self.ids.shape[1]}")
        wrong = self.find_wrong_padding(pad_id)
        if wrong.any():
            row, cell = (int(places[0]) for places in np.nonzero(wrong))
            raise ValueError(
                f"row {row}: cell {cell} is padding and holds {self.ids[row, cell]}, "
                f"expected {pad_id}"
            )

    def find_wrong_padding(self, pad_id: int) -> np.ndarray:
        """Find cells that hold no token and something else than pad_id, bool[B, width]."""
        wrong: np.ndarray = (self.ids != pad_id) & ~self.mask
        return wrong

    def count_padding(self) -> int:
        """Count the cells that hold no token."""
        return self.ids.size - int(self.lengths.sum())

    def _check_filler(self) -> None:
        filler = slice(len(self.lengths) - self.num_filler_rows, None)
        if self.lengths[filler].any():
            raise ValueError("a filler row has ids")
        if self.original_indices is not None and (self.original_indices[filler] != -1).any():
            raise ValueError("a filler row has an original index, expected -1")


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
    begins = place_rows(lengths, np.full(len(lengths), width), padding_side=padding_side)
    copy_ranges(ids, np.cumsum(lengths) - lengths, cells, begins, lengths)
    return PaddedBatch(cells.reshape(-1, width), lengths, padding_side=padding_side)


def place_rows(lengths: np.ndarray, widths: np.ndarray, *, padding_side: str) -> np.ndarray:
    """Give the cell where the ids of each row begin, all rows one after another.

    Args:
        lengths, widths: int64, of each row, without and with its padding.

    >>> place_rows(np.array([2, 1]), np.array([3, 3]), padding_side="left").tolist()
    [1, 5]
    """
    begins: np.ndarray = np.cumsum(widths) - widths
    return begins + widths - lengths if padding_side == "left" else begins


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
