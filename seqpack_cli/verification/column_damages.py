"""Damages to the columns of a shard in memory, as `damages` has them for the other arrays.

Each takes a sound shard and one of its columns, and returns copies of the arrays that change, or
None if this column cannot have such a damage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.shards.layouts import Tensors
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues, join_values

MAX_ROWS = 1000  # rows that are searched for a place
Arrays = dict[str, np.ndarray]


def swap_values(shard: Shard, column: Column) -> Arrays | None:
    """Swap the values of two rows."""
    rows, values = find_real_rows(shard), column.view(shard.tensors)
    if not len(rows):
        return None
    spelled = column.spell(values.take(rows))
    others = [int(row) for row, value in zip(rows, spelled, strict=True) if value != spelled[0]]
    if not others:
        return None
    order = np.arange(len(shard.tensors["lengths"]))
    order[[rows[0], others[0]]] = others[0], rows[0]
    return to_arrays(column, values.take(order))


def move_values(shard: Shard, column: Column) -> Arrays | None:
    """Move the values of a row by one token."""
    values = shard.tensors[column.tensor_name].copy()
    for row in find_real_rows(shard):
        cells = shard.arrays.find_cells(row[None])
        if (values[cells] != values[cells[0]]).any():
            values[cells] = np.roll(values[cells], 1)
            return {column.tensor_name: values}
    return None


def swap_entries(shard: Shard, column: Column) -> Arrays | None:
    """Swap the entries of two rows, as many as the shorter one has."""
    values, rows = shard.tensors[column.tensor_name].copy(), find_real_rows(shard)
    if not len(rows):
        return None
    first, *others = (shard.arrays.find_cells(row[None]) for row in rows)
    for cells in others:
        count = min(len(first), len(cells))
        pair = first[:count], cells[:count]
        if (values[pair[0]] != values[pair[1]]).any():
            values[np.stack(pair)] = values[np.stack(pair[::-1])]
            return {column.tensor_name: values}
    return None


def clear_entries(shard: Shard, column: Column) -> Arrays | None:
    """Set all entries to 0."""
    values = shard.tensors[column.tensor_name]
    return {column.tensor_name: np.zeros_like(values)} if values.any() else None


def shift_text(shard: Shard, column: Column) -> Arrays | None:
    """Move the last character of a text to the text of the next row."""
    rows, texts = find_real_rows(shard), column.view(shard.tensors)
    for row in rows[:-1][np.diff(rows) == 1].tolist():
        if text := texts[row]:
            offsets = shard.tensors[column.offsets_name].copy()
            offsets[row + 1] -= len(text[-1].encode())
            return {column.offsets_name: offsets}
    return None


def spoil_filler(shard: Shard, column: Column) -> Arrays | None:
    """Write a value into a filler row."""
    fillers = np.flatnonzero(shard.tensors["original_indices"] < 0)
    return _write(shard, column, fillers)


def spoil_column_padding(shard: Shard, column: Column) -> Arrays | None:
    """Write a value into the padding of a column per token."""
    return _write(shard, column, np.flatnonzero(~shard.arrays.mask_tokens()))


def find_real_rows(shard: Shard) -> np.ndarray:
    """Return the first rows that are not filler, and do not go on from the batch before."""
    is_real = shard.tensors["original_indices"] >= 0
    if "resets" in shard.tensors:
        is_real &= shard.tensors["resets"] == 1
    return np.flatnonzero(is_real)[:MAX_ROWS]


def to_arrays(column: Column, values: Values) -> Arrays:
    """Return the arrays of a file that hold values."""
    if isinstance(values, TextValues):
        return {column.offsets_name: values.offsets, column.tensor_name: values.data}
    return {column.tensor_name: values}


def drop_from_columns(
    shard: Shard, row: int, cells: np.ndarray, *, keeps_cells: bool = False
) -> Arrays:
    """Remove a row, and cells of the data, from all columns.

    Args:
        keeps_cells: the cells are padding afterwards.
    """
    changed: Arrays = {}
    kept = np.delete(np.arange(len(shard.tensors["lengths"])), row)
    for column in shard.columns.values():
        if column.is_per_token:
            name = column.tensor_name
            changed[name] = shard.tensors[name].copy()
            changed[name][cells] = column.fill
            changed[name] = changed[name] if keeps_cells else np.delete(changed[name], cells)
        else:
            changed |= to_arrays(column, column.view(shard.tensors).take(kept))
    return changed


def join_columns(shard: Shard, parts: Sequence[Tensors]) -> Arrays:
    """Join the columns of parts of a shard."""
    changed: Arrays = {}
    for column in shard.columns.values():
        changed |= to_arrays(column, join_values([column.view(part) for part in parts]))
    return changed


def _write(shard: Shard, column: Column, places: np.ndarray) -> Arrays | None:
    if not len(places):
        return None
    values = shard.tensors[column.tensor_name].copy()
    values[places[0]] = 1 if column.fill == 0 else 0
    return {column.tensor_name: values}
