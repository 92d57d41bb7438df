"""The `padded` layout: one rectangle per batch, padded right or left; `lengths` give the mask."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.shards.layouts import AFTER, BEFORE, NO_CUTS, PADDING, describe_fields
from seqpack_cli.shards.row_checks import check_not_empty
from seqpack_cli.shards.time_steps import check_lengths
from seqpack_cli.tokens.kinds import Values


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """Sequences of one batch, padded to a rectangle."""

    piece_starts: ClassVar[None] = None
    encoder_rows: ClassVar[None] = None  # the rows of pairs are in one order

    ids: np.ndarray  # [B, width]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    padding_side: str = "right"
    num_filler_rows: int = 0  # the last rows, of length 0 and original index -1
    columns: dict[str, Values] = field(default_factory=dict)
    # longest first; False on the decoder's side of pairs
    is_sorted: bool = field(default=True, repr=False)

    __repr__ = describe_fields

    @property
    def mask(self) -> np.ndarray:
        """True for tokens, False for padding, bool[B, width]."""
        width = self.ids.shape[1]
        mask: np.ndarray = np.arange(width) < self.lengths[:, None]
        return mask[:, ::-1] if self.padding_side == "left" else mask

    @property
    def data(self) -> np.ndarray:
        """The cells, row after row, [B x width]."""
        return self.ids.reshape(-1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ids."""
        return self.ids.shape

    @property
    def num_steps(self) -> int:
        """The width of the rectangle."""
        return int(self.ids.shape[1])

    @property
    def first_steps(self) -> np.ndarray:
        """The column of each row's first token, int64[B]."""
        return (self.padding_side == "left") * (self.num_steps - self.lengths)

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return no cells: no row goes on in the next batch."""
        return NO_CUTS

    def without_filler(self) -> PaddedBatch:
        """Return the batch without its filler rows."""
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
            columns={name: values[kept] for name, values in self.columns.items()},
        )

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        return [self.row(row) for row in range(len(self.lengths))]

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""
        start = self._find_start(index)
        row: np.ndarray = self.data[start : start + self.lengths[index]]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in data, int64[length]."""
        return self._find_start(row) + np.arange(self.lengths[row])

    def _find_start(self, row: int) -> int:
        is_left = self.padding_side == "left"
        return (row + is_left) * self.num_steps - is_left * int(self.lengths[row])

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none."""
        followed, mask = np.full(values.shape, fill, np.int64), self.mask
        is_followed = mask[:, :-1] & mask[:, 1:]
        followed[:, :-1][is_followed] = values[:, 1:][is_followed]
        return followed

    def find_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of the first and of the last token of each row but filler, int64."""
        rows = np.flatnonzero(self.lengths)
        starts = rows * self.num_steps + self.first_steps[rows]
        return starts, starts + self.lengths[rows] - 1

    def extend(self, *, before: bool, after: bool) -> PaddedBatch:
        """Return rows with a token more before or after them; ids are the cells of these rows.

        The cells of the new tokens are BEFORE and AFTER. Filler rows stay empty.
        """
        height, width = self.shape
        cells = np.full((height, width + before + after), PADDING)
        cells[:, before : before + width] = np.where(self.mask, self._number_cells(), PADDING)
        rows = np.flatnonzero(self.lengths)
        firsts, lengths = self.first_steps[rows], self.lengths[rows]
        if before:
            cells[rows, firsts] = BEFORE
        if after:
            cells[rows, firsts + before + lengths] = AFTER
        lengths = self.lengths + (before + after) * (self.lengths > 0)
        return replace(self, ids=cells, lengths=lengths)

    def shorten(self) -> PaddedBatch:
        """Return rows without their last token, and a column less; ids are the cells of these rows.

        Filler rows stay empty; others must have two tokens.
        """
        cells, lengths = self._number_cells()[:, :-1], np.maximum(self.lengths - 1, 0)
        shorter = replace(self, ids=cells, lengths=lengths)
        return replace(shorter, ids=np.where(shorter.mask, cells, PADDING))

    def with_ids(self, ids: np.ndarray, columns: dict[str, Values]) -> PaddedBatch:
        """Return the same rows with other ids, [B x width], and columns."""
        return replace(self, ids=ids.reshape(self.shape), columns=columns)

    def _number_cells(self) -> np.ndarray:
        return np.arange(self.ids.size).reshape(self.shape)

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"width": self.num_steps, "padding_side": self.padding_side}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if a row does not fit the width, or padding is not pad_id."""
        self._check_filler()
        lengths = self.lengths[: len(self.lengths) - self.num_filler_rows]
        (check_lengths if self.is_sorted else check_not_empty)(lengths)
        longest = int(self.lengths.max())
        if longest > self.ids.shape[1]:
            raise ValueError(f"the longest row has {longest} ids, width is {self.ids.shape[1]}")
        wrong = self.find_wrong_padding(pad_id)
        if wrong.any():
            row, cell = (int(places[0]) for places in np.nonzero(wrong))
            raise ValueError(
                f"row {row}: cell {cell} is padding and holds {self.ids[row, cell]}, "
                f"expected {pad_id}"
            )

    def find_wrong_padding(self, pad_id: int, values: np.ndarray | None = None) -> np.ndarray:
        """Find padding cells that do not hold pad_id, bool[B, width]."""
        wrong: np.ndarray = ((self.ids if values is None else values) != pad_id) & ~self.mask
        return wrong

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding of the ids, or of other values, is pad_id."""
        return not self.find_wrong_padding(pad_id, values).any()

    def count_padding(self) -> int:
        """Count the padding cells."""
        return self.ids.size - int(self.lengths.sum())

    def _check_filler(self) -> None:
        filler = slice(len(self.lengths) - self.num_filler_rows, None)
        if self.lengths[filler].any():
            raise ValueError("a filler row has ids, expected none")
        if self.original_indices is not None and (self.original_indices[filler] != -1).any():
            raise ValueError("a filler row has an original index, expected -1")
