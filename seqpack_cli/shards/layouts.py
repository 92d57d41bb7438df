"""The protocols that every layout implements: its batches, and their arrays in a shard.

A batch is a few flat arrays. A shard concatenates those of all its batches, with offsets where each
batch begins, so that one batch can be taken out as views. Only the modules named
after a layout know where the tokens of a row lie; other code asks them, and never which layout it
has.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.tokens.kinds import Values

# In changed rows, a number for each cell that those before did not have; counted from the end.
PADDING, BEFORE, AFTER = -1, -2, -3
NO_CUTS = (np.empty(0, np.int64), np.empty(0, np.int64))  # cells and ids

Tensors = Mapping[str, np.ndarray]  # the arrays of a shard by name


class Batch(Protocol):
    """The rows of one batch."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def columns(self) -> dict[str, Values]:
        """The columns by name: per sequence [B], filler rows filled; per token as `shape`."""

    @property
    def data(self) -> np.ndarray:
        """The ids and padding as one flat array, in the order of the shard."""

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens in each row, int64[B]."""

    @property
    def original_indices(self) -> np.ndarray | None:
        """Index of each row's sequence in the token store, int64[B]; None if not from a store."""

    @property
    def piece_starts(self) -> np.ndarray | None:
        """Where in its sequence each row begins, int64[B]; None where rows are whole sequences."""

    @property
    def num_filler_rows(self) -> int:
        """Number of empty rows at the end of the batch."""

    @property
    def num_steps(self) -> int:
        """Width of the rectangle, or length of the longest row where there is none."""

    @property
    def first_steps(self) -> np.ndarray:
        """The column of each row's first token, int64[B]."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data` in torch: [S], or [B, width]."""

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in `data`, int64[length]."""

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Args:
            values: one for each cell, in the shape of the ids.
        """

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells whose next token lies in the next batch, and its id there.

        Left out are tokens whose next one is not a target.
        """

    def without_filler(self) -> Batch:
        """Return the batch without its filler rows."""

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if the arrays contradict each other."""

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return whether all padding is pad_id.

        Args:
            values: looked at instead of the ids, in their shape.
        """

    def count_padding(self) -> int:
        """Count the padding cells."""

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has, as JSON values."""


class RowSource(Protocol):
    """A source of the ids of planned rows."""

    @property
    def dtype(self) -> str:
        """The dtype of the ids."""

    def fill(self, cells: np.ndarray, begins: np.ndarray) -> None:
        """Copy the ids of each row to its own place in cells."""


class Layout(Protocol):
    """How the rows of a shard are laid out in its arrays."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, geometry: Geometry) -> None: ...

    @property
    def geometry(self) -> Geometry:
        """The numbers on which the places of tokens depend."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays of a batch, in file order, `data` last."""

    @property
    def has_padding(self) -> bool:
        """Whether `data` may hold other cells than tokens."""

    def make_batch(self, arrays: dict[str, np.ndarray]) -> Batch:
        """Make a batch from its flat arrays.

        Raises:
            ValueError: they cannot belong to one batch.
        """

    def make_arrays(self, rows: ShardRows) -> dict[str, np.ndarray]:
        """Make the arrays of a shard that differ from layout to layout."""

    def iter_data(self, tensors: Tensors, source: RowSource) -> Iterator[np.ndarray]:
        """Yield the `data` of a shard, or a column with a value per token, in pieces of any size.

        Args:
            source: of all rows that are not filler.
        """

    def find_cells(self, tensors: Tensors, rows: np.ndarray) -> np.ndarray:
        """Return where the tokens of rows lie in `data`, row after row; the shard must be valid."""

    def mask_tokens(self, tensors: Tensors) -> np.ndarray:
        """Return the mask of the tokens in `data`, False for padding; the shard must be valid."""

    def copy_rows(
        self, tensors: Tensors, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
    ) -> None:
        """Copy rows without padding, each to its own place in target; the shard must be valid."""

    def find_wrong(self, tensors: Tensors, wrong: np.ndarray, *, padding: bool) -> np.ndarray:
        """Find the batches whose arrays contradict each other, bool[batches].

        Args:
            wrong: the batches that already failed the checks that all layouts share.
            padding: also check that all padding is pad_id.
        """


def describe_fields(batch: Any) -> str:
    """Return the repr of a batch in one line: dtype and shape stand for an array or a tensor."""
    values = ((it.name, getattr(batch, it.name)) for it in fields(batch) if it.repr)
    spelled = (
        f"{name}={_describe_value(value)}"
        for name, value in values
        if value is not None and (name != "columns" or value)
    )
    return f"{type(batch).__name__}({', '.join(spelled)})"


def _describe_value(value: Any) -> str:
    if hasattr(value, "_fields"):  # torch's PackedSequence
        values = zip(value._fields, value, strict=True)
        spelled = (f"{name}={_describe_value(each)}" for name, each in values if each is not None)
        return f"{type(value).__name__}({', '.join(spelled)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_describe_value(value[name])}' for name in value)}}}"
    if isinstance(value, list):
        return f"{len(value)} texts"
    if not hasattr(value, "dtype"):
        return repr(value)
    device = getattr(value, "device", "cpu")  # a numpy array has none, or says so itself
    place = "" if str(device) == "cpu" else f" on {device}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"


def iter_pieces(cells: np.ndarray) -> Iterator[np.ndarray]:
    """Yield cells in pieces small enough to stay in the cache while they are hashed and written."""
    size = LIMITS.entries_per_block
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def is_in_range(ids: np.ndarray, max_id: int) -> bool:
    """Return whether all ids are from 0 to max_id."""
    return not ids.size or (
        np.maximum.reduce(ids, axis=None) <= max_id
        and (ids.dtype.kind == "u" or np.minimum.reduce(ids, axis=None) >= 0)
    )


def check_ids(batch: Batch, *, max_id: int) -> None:
    """Raise ValueError for an id that is not from 0 to max_id: an embedding on a GPU would fail."""
    if not is_in_range(batch.data, max_id):
        cell = int(((batch.data < 0) | (batch.data > max_id)).argmax())
        raise ValueError(f"id {batch.data[cell]} at cell {cell}, expected ids from 0 to {max_id}")
    _, next_ids = batch.find_cuts()
    if not is_in_range(next_ids, max_id):
        largest = int(next_ids.max())
        raise ValueError(f"next_ids holds {largest}, expected ids from 0 to {max_id}")


def find_layout(name: str, geometry: Geometry) -> Layout:
    """Return the layout with one of the names in `layout_rules.LAYOUTS`."""
    module = importlib.import_module(f"seqpack_cli.shards.{name}_layout")
    layout: Layout = module.LAYOUT(geometry)
    return layout


def fill_with(layout: Layout, fill: int) -> Layout:
    """Return the layout with another value in its padding."""
    return type(layout)(replace(layout.geometry, pad_id=fill))
