"""The columns of a shard: they follow its rows, or the cells of its `data`.

A column with one value per sequence has one entry per row; one with a value per token is laid out
as `data` is. Values are checked as ids are: none of a manipulated file reaches torch unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from seqpack_cli.errors import quote
from seqpack_cli.shards.layouts import Batch, Layout, Tensors, fill_with
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues, check_offsets

Columns = Mapping[str, Column]
AllValues = list[tuple[str, Values, bool]]  # name, values of the whole shard, if per token
NO_COLUMN: Columns = MappingProxyType({})


def view_all(columns: Columns, tensors: Tensors) -> AllValues:
    """Find the values of columns once, so that a batch takes 0.3 us for each."""
    return [(name, each.view(tensors), each.is_per_token) for name, each in columns.items()]


def view_columns(found: AllValues, batch: Batch, rows: slice, cells: slice) -> None:
    """Add the columns to a batch, as views.

    Args:
        rows, cells: of the batch, in all those of the shard.
    """
    for name, values, is_per_token in found:
        some = values[cells if is_per_token else rows]
        batch.columns[name] = np.asarray(some).reshape(batch.shape) if is_per_token else some


def cut_columns(
    columns: Columns, tensors: Tensors, rows: slice, cells: slice
) -> dict[str, np.ndarray]:
    """Return the arrays of the columns of some batches."""
    found: dict[str, np.ndarray] = {}
    for column in columns.values():
        values = column.view(tensors)[cells if column.is_per_token else rows]
        if isinstance(values, TextValues):
            first, last = int(values.offsets[0]), int(values.offsets[-1])
            values = TextValues(values.data[first:last], values.offsets - first)
        found |= column.make_arrays(values)
    return found


def check_column_lengths(columns: Columns, tensors: Tensors) -> None:
    """Raise ValueError unless every column has as many entries as it must.

    Args:
        tensors: all of a shard, whose other offsets were checked.
    """
    num_rows, num_cells = len(tensors["lengths"]), len(tensors["data"])
    for column in columns.values():
        array = tensors[column.tensor_name]
        if column.is_text:
            name = column.offsets_name
            offsets = tensors[name]
            check_offsets(offsets, num_texts=num_rows, num_bytes=len(array), name=name)
            continue
        number = num_cells if column.is_per_token else num_rows
        if len(array) != number:
            raise ValueError(
                f"{column.tensor_name} has {len(array)} entries, expected {number}, "
                f"one for each {'cell' if column.is_per_token else 'row'}"
            )


def find_wrong_rows(columns: Columns, tensors: Tensors, is_filler: np.ndarray) -> np.ndarray:
    """Find rows with an impossible value, bool[rows].

    Args:
        is_filler: which rows hold no sequence.
    """
    wrong = np.zeros(len(is_filler), bool)
    for column in columns.values():
        if not column.is_per_token:
            values = column.view(tensors)
            wrong |= np.where(is_filler, ~column.is_fill(values), column.find_wrong(values))
    return wrong


def find_wrong_cells(
    columns: Columns, tensors: Tensors, wrong: np.ndarray, layout: Layout
) -> np.ndarray:
    """Find batches with an impossible value beside a token, or padding that is not filled.

    Args:
        wrong: the batches that already failed other checks.
    """
    found, starts = wrong.copy(), tensors["data_offsets"][:-1]
    for column in columns.values():
        if column.is_per_token:
            values = tensors[column.tensor_name]
            found |= np.logical_or.reduceat(column.find_wrong(values), starts)
            filled = fill_with(layout, column.fill)
            found |= filled.find_wrong({**tensors, "data": values}, wrong, padding=True)
    return found


def are_cells_sound(columns: Columns, batch: Batch) -> bool:
    """Return whether the columns per token of a checked batch hold possible values."""
    return not any(True for _ in _iter_wrong_cells(columns, batch))


def check_columns(columns: Columns, batch: Batch) -> None:
    """Raise ValueError if a column of a checked batch holds an impossible value."""
    first_filler = len(batch.lengths) - batch.num_filler_rows
    for name, column in columns.items():
        if column.is_per_token:
            continue
        is_filler = np.arange(len(batch.lengths)) >= first_filler
        values = batch.columns[name]
        wrong = np.where(is_filler, ~column.is_fill(values), column.find_wrong(values))
        if wrong.any():
            row = int(wrong.argmax())
            what = _describe(column, values, row, is_filler=bool(is_filler[row]))
            raise ValueError(f"row {row}: column {quote(name)} {what}")
    for name, what in _iter_wrong_cells(columns, batch):
        raise ValueError(f"column {quote(name)} {what}")


def _iter_wrong_cells(columns: Columns, batch: Batch) -> Iterator[tuple[str, str]]:
    for name, column in columns.items():
        if not column.is_per_token:
            continue
        values = np.asarray(batch.columns[name])
        wrong = column.find_wrong(values).ravel()
        if wrong.any():
            cell = int(wrong.argmax())
            yield name, f"at cell {cell} {_describe(column, values.ravel(), cell)}"
        if not batch.has_right_padding(column.fill, values):
            yield name, f"has padding that is not {column.fill}"


def _describe(column: Column, values: Values, place: int, *, is_filler: bool = False) -> str:
    """Return what a wrong value is, and what it must be."""
    if isinstance(values, TextValues):
        return "is not empty, but the row is filler" if is_filler else "is not UTF-8"
    expected = f"{column.fill} in a filler row" if is_filler else column.expected
    return f"is {values[place]}, expected {expected}"
