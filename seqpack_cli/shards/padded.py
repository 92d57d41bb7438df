"""The `padded` layout: one rectangle per batch, padded right or left; `lengths` give the mask."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.errors import check_choice
from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.runs.options import convert
from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.layouts import (
    AFTER,
    BEFORE,
    PADDING,
    Batch,
    check_fits,
    check_sorted,
    describe_fields,
    join_sequences,
    refuse,
)
from seqpack_cli.tokens.kinds import Values


@dataclass(frozen=True, eq=False)
class PaddedBatch(Batch):
    """Sequences of one batch, padded to a rectangle."""

    piece_starts = None
    ids_name = "ids"

    ids: np.ndarray  # [B, width]
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    padding_side: str = "right"
    num_filler_rows: int = 0  # the last rows, of length 0 and original index -1
    columns: dict[str, Values] = field(default_factory=dict)

    __repr__ = describe_fields

    @property
    def mask(self) -> np.ndarray:
        """True for tokens, False for padding, bool[B, width]."""
        mask: np.ndarray = np.arange(self.num_steps) < self.lengths[:, None]
        return mask[:, ::-1] if self.padding_side == "left" else mask

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
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

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where in data each row begins, int64[B]."""
        starts: np.ndarray = np.arange(len(self.lengths)) * self.num_steps + self.first_steps
        return starts

    def without_filler(self) -> PaddedBatch:
        """Return the batch without its filler rows."""
        if not self.num_filler_rows:
            return self
        kept, indices = slice(0, -self.num_filler_rows), self.original_indices
        return replace(
            self,
            ids=self.ids[kept],
            lengths=self.lengths[kept],
            original_indices=None if indices is None else indices[kept],
            num_filler_rows=0,
            columns={name: values[kept] for name, values in self.columns.items()},
        )

    def extend(self, *, before: bool, after: bool) -> PaddedBatch:
        """Return rows with a token more before or after them; ids are the cells of these rows.

        The cells of the new tokens are BEFORE and AFTER. Filler rows stay empty.
        """
        (height, width), added = self.shape, before + after
        longer = replace(
            self,
            ids=np.full((height, width + added), PADDING),
            lengths=self.lengths + added * (self.lengths > 0),
        )
        firsts, lasts = longer.find_ends()
        is_old = longer.mask.reshape(-1)
        for is_new, cells, value in ((before, firsts, BEFORE), (after, lasts, AFTER)):
            if is_new:
                longer.data[cells], is_old[cells] = value, False
        longer.data[is_old] = np.flatnonzero(self.mask)
        return longer

    def shorten(self) -> PaddedBatch:
        """Return rows without their last token, and a column less; ids are the cells of these rows.

        Filler rows stay empty; others must have two tokens.
        """
        cells = np.arange(self.ids.size).reshape(self.shape)[:, :-1]
        shorter = replace(self, ids=cells, lengths=np.maximum(self.lengths - 1, 0))
        return replace(shorter, ids=np.where(shorter.mask, cells, PADDING))

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"width": self.num_steps, "padding_side": self.padding_side}


class PaddedArrays(ShardArrays):
    """Rectangle after rectangle."""

    rules = LAYOUTS["padded"]
    all_names = ("lengths", "original_indices", "widths", "num_filler_rows", "data")

    def make_batch(self, arrays: dict[str, Any]) -> PaddedBatch:
        """Make a batch from its flat arrays."""
        return PaddedBatch(
            arrays["data"].reshape(len(arrays["lengths"]), -1),
            arrays["lengths"],
            arrays["original_indices"],
            self.geometry.padding_side,
            int(arrays["num_filler_rows"][0]) if self.geometry.has_filler_rows else 0,
        )

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of all rows, including filler rows, and the width of each batch."""
        num_rows = np.diff(rows.batch_offsets) + rows.num_filler_rows
        ends = np.repeat(rows.batch_offsets[1:], rows.num_filler_rows)
        return {
            "lengths": np.insert(rows.lengths.astype(np.int64), ends, 0),
            "original_indices": np.insert(rows.indices, ends, -1),
            "sequence_offsets": to_offsets(num_rows),
            "widths": rows.num_cells // num_rows,
        }

    def find_starts(self, rows: np.ndarray) -> np.ndarray:
        """Return where in `data` each of some rows begins, int64[N]."""
        tensors, offsets = self.tensors, self.tensors["sequence_offsets"]
        batches = np.searchsorted(offsets, rows, "right") - 1
        widths = tensors["widths"][batches]
        starts: np.ndarray = tensors["data_offsets"][batches] + (rows - offsets[batches]) * widths
        if self.geometry.padding_side == "left":
            starts += widths - tensors["lengths"][rows]
        return starts

    def check_rows(self) -> None:
        """Raise ValueError unless batches are rectangles, as wide as the longest row at least."""
        super().check_rows()
        tensors, lengths = self.tensors, self.tensors["lengths"]
        num_rows, sizes = self.num_rows, np.diff(tensors["data_offsets"])
        if self.geometry.has_filler_rows:
            found, indices = tensors["num_filler_rows"], tensors["original_indices"]
            refuse(
                (found < 0) | (found >= num_rows),
                lambda it: f"{found[it]} filler rows in a batch of {num_rows[it]} rows",
            )
            ends = tensors["sequence_offsets"][1:]
            is_filler = np.arange(len(lengths)) >= (ends - found).repeat(num_rows)
            refuse(
                ((lengths == 0) != is_filler) | (is_filler & (indices != -1)),
                lambda row: (
                    f"row {row} has length {lengths[row]} and original index {indices[row]}, "
                    "expected 0 and -1 in filler rows alone"
                ),
            )
        if not self.geometry.is_decoder:
            check_sorted(tensors)
        widths = tensors["widths"]
        refuse(  # a width above the number of cells could make the product wrap around
            (widths < 1) | (widths > sizes) | (widths * num_rows != sizes),
            lambda it: f"{num_rows[it]} rows of width {widths[it]}, data has {sizes[it]} cells",
        )
        widths_of_rows = widths.repeat(num_rows)
        refuse(
            lengths > widths_of_rows,
            lambda row: f"row {row} has {lengths[row]} ids, width is {widths_of_rows[row]}",
        )


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
        ValueError: the list is empty, a sequence is longer than total_length, the ids' dtype cannot
            hold padding_value or an id, or padding_side is neither "right" nor "left".

    >>> pad_sequence([np.array([1, 2, 3]), np.array([9])]).ids.tolist()
    [[1, 2, 3], [9, 0, 0]]
    """
    ids, lengths = join_sequences(sequences)
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
    check_fits(ids.dtype, "padding_value is", padding_value)
    cells = np.full((len(lengths), total_length), padding_value, ids.dtype)
    batch = PaddedBatch(cells, lengths, padding_side=padding_side)
    copy_ranges(ids, np.cumsum(lengths) - lengths, batch.data, batch.starts, lengths)
    return batch


def unpad_sequence(padded_sequences: PaddedBatch) -> list[np.ndarray]:
    """Return the sequences of a padded batch in row order; the inverse of `pad_sequence`.

    Raises:
        ValueError: a length is negative or above the width.

    >>> batch = pad_sequence([np.array([1, 2, 3]), np.array([9])])
    >>> [row.tolist() for row in unpad_sequence(batch)]
    [[1, 2, 3], [9]]
    """
    padded: PaddedBatch = convert("padded_sequences", padded_sequences, PaddedBatch)
    width = padded.ids.shape[1]
    if len(padded.lengths) != len(padded.ids):
        raise ValueError(f"{len(padded.lengths)} lengths for {len(padded.ids)} rows")
    if len(padded.lengths) and not 0 <= padded.lengths.min() <= padded.lengths.max() <= width:
        raise ValueError(f"a length is not from 0 to the width {width}")
    return padded.rows()
