"""The contract that every layout keeps: its batches, and the arrays that a shard has of them.

A batch is a few flat arrays; a shard holds those of all its batches, with offsets that say where
each batch begins, and one batch is taken out again as views. `packed`, `padded` and `varlen` each
say where the tokens of a row lie; everyone else asks them, and no one asks which layout it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows

CELLS_PER_PIECE = 1 << 18

Tensors = Mapping[str, np.ndarray]  # the arrays of a shard by name


class Batch(Protocol):
    """The rows of one batch."""

    @property
    def data(self) -> np.ndarray:
        """The ids and the padding between them, flat, as they stand in the shard."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, int64[B]."""

    @property
    def original_indices(self) -> np.ndarray | None:
        """The sequence of each row in the token store, int64[B]; None of a batch made by hand."""

    @property
    def piece_starts(self) -> np.ndarray | None:
        """Where in its sequence each row begins, int64[B]; None where rows are whole sequences."""

    @property
    def num_filler_rows(self) -> int:
        """The last rows, which hold nothing."""

    @property
    def num_steps(self) -> int:
        """Columns of the batch drawn row below row: the width, or the longest row's length."""

    @property
    def first_steps(self) -> np.ndarray:
        """The column in which each row's first token stands, int64[B]."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in which torch takes `data`: [S], or [B, width]."""

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""

    def row(self, index: int) -> np.ndarray:
        """Return one sequence of a batch that was checked."""

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in `data`, int64[length]."""

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, or fill where none is.

        Args:
            values: one for each cell, in the shape of the ids.
        """

    def without_filler(self) -> Batch:
        """Return the rows that hold sequences."""

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError unless the arrays belong together."""

    def has_right_padding(self, pad_id: int) -> bool:
        """Say whether every cell without a token holds pad_id."""

    def count_padding(self) -> int:
        """Count the cells that hold no token."""

    def describe_shape(self) -> dict[str, Any]:
        """Return what only this layout has, as plain values."""


class RowSource(Protocol):
    """The ids of planned rows, wherever they come from."""

    @property
    def dtype(self) -> str:
        """Of the ids."""

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all rows in any order, [S], and where each row begins in them."""

    def fill(self, cells: np.ndarray, begins: np.ndarray) -> None:
        """Copy the ids of each row to its own place in cells."""


class Layout(Protocol):
    """Where the tokens of a shard's rows lie."""

    arrays: ClassVar[tuple[str, ...]]  # of a batch, in file order, `data` last

    def __init__(self, pad_id: int = 0, padding_side: str = "right") -> None: ...

    def make_batch(self, arrays: dict[str, np.ndarray]) -> Batch:
        """Make a batch of its flat arrays.

        Raises:
            ValueError: they can not be those of a batch.
        """

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of a shard that not every layout has, or has otherwise."""

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the ids of a shard in pieces, as they stand in `data`.

        Args:
            source: of all rows that are not filler.
        """

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows of a sound shard lie in `data`, row after row."""

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Say which entries of a sound shard's `data` are tokens and not padding, bool."""

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy rows of a sound shard, each to its own place in target, without padding."""

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches whose arrays contradict each other, bool[batches].

        Args:
            wrong: those already known to be, by what all layouts have in common.
            padding: look at what stands in cells that hold no token, too.
        """


def describe_fields(batch: Any) -> str:
    """Return the repr of a batch in one line: dtype and shape stand for an array or a tensor."""
    values = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    spelled = (f"{name}={_describe_value(value)}" for name, value in values if value is not None)
    return f"{type(batch).__name__}({', '.join(spelled)})"


def _describe_value(value: Any) -> str:
    if hasattr(value, "_fields"):  # torch's PackedSequence
        values = zip(value._fields, value, strict=True)
        spelled = (f"{name}={_describe_value(each)}" for name, each in values if each is not None)
        return f"{type(value).__name__}({', '.join(spelled)})"
    if not hasattr(value, "dtype"):
        return repr(value)
    device = getattr(value, "device", "cpu")  # a numpy array has none, or says so itself
    place = "" if str(device) == "cpu" else f" on {device}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"


def iter_pieces(cells: np.ndarray) -> Iterator[np.ndarray]:
    """Yield cells in pieces that stay in the cache while they are hashed and written."""
    for start in range(0, len(cells), CELLS_PER_PIECE):
        yield cells[start : start + CELLS_PER_PIECE]


def is_in_range(ids: np.ndarray, max_id: int) -> bool:
    """Say whether all ids are from 0 to max_id."""
    return not ids.size or (
        np.maximum.reduce(ids, axis=None) <= max_id
        and (ids.dtype.kind == "u" or np.minimum.reduce(ids, axis=None) >= 0)
    )


def check_ids(batch: Batch, *, max_id: int) -> None:
    """Raise ValueError unless all ids are from 0 to max_id, which an embedding on a GPU needs."""
    if not is_in_range(batch.data, max_id):
        cell = int(((batch.data < 0) | (batch.data > max_id)).argmax())
        raise ValueError(f"id {batch.data[cell]} at cell {cell}, expected ids from 0 to {max_id}")


def find_layout(name: str, *, pad_id: int = 0, padding_side: str = "right") -> Layout:
    """Return the layout of a name in `layout_rules.LAYOUTS`.

    Args:
        pad_id, padding_side: of shards whose rows are padded.
    """
    module = importlib.import_module(f"seqpack_cli.shards.{name}")
    layout: Layout = module.LAYOUT(pad_id, padding_side)
    return layout
