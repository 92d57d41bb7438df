"""Damages to the arrays of one shard in memory, each of which the self-test must find.

Each function takes a sound shard and returns copies of the arrays that change, or None if the shard
cannot have such a damage. They imitate bugs and bad disks that leave the sizes right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.verification.batch_damages import drop_row, swap_batches
from seqpack_cli.verification.column_damages import (
    clear_entries,
    find_real_rows,
    move_values,
    shift_text,
    spoil_column_padding,
    spoil_filler,
    swap_entries,
    swap_values,
)
from seqpack_cli.verification.shared_row_damages import (
    change_next_id,
    flip_reset,
    move_row_index,
    pad_middle,
    shift_sequence,
    swap_streams,
)


@dataclass(frozen=True)
class Damage:
    """One kind of damage."""

    name: str
    level: str  # the level that must find it
    change: Callable[[Shard], dict[str, np.ndarray] | None]
    # the array that is damaged, which other layouts lack, or "padding" or "alignment"
    needs: str = "data"
    needs_plan: bool = False
    needs_column: Callable[[Column], bool] | None = None

    def belongs_to(self, shard: Shard) -> bool:
        """Return whether a shard has the array that is damaged."""
        has_column = self.needs_column is None or any(
            map(self.needs_column, shard.columns.values())
        )
        arrays = shard.arrays
        kinds = {"padding": arrays.has_padding, "alignment": arrays.geometry.multiple > 1}
        return has_column and kinds.get(self.needs, self.needs in shard.tensors)


def damage_column(
    name: str,
    level: str,
    change: Callable[[Shard, Column], dict[str, np.ndarray] | None],
    needs_column: Callable[[Column], bool],
    needs: str = "data",
) -> Damage:
    """Return the damage to the first column that is of the right kind and can have it."""

    def change_first(shard: Shard) -> dict[str, np.ndarray] | None:
        columns = filter(needs_column, shard.columns.values())
        return next(filter(None, (change(shard, column) for column in columns)), None)

    return Damage(name, level, change_first, needs, needs_column=needs_column)


def flip_id(shard: Shard) -> dict[str, np.ndarray] | None:
    """Change one token id."""
    if shard.max_id < 1:
        return None
    data = shard.tensors["data"].copy()
    is_real = shard.tensors["original_indices"] >= 0
    if "resets" in shard.tensors:  # other links show the first id of what goes on
        is_real &= shard.tensors["resets"] == 1
    if not is_real.any():
        return None
    cell = shard.arrays.find_cells(np.flatnonzero(is_real)[-1:])[0]
    data[cell] = (int(data[cell]) + 1) % (shard.max_id + 1)
    return {"data": data}


def swap_rows(shard: Shard) -> dict[str, np.ndarray] | None:
    """Swap the original indices of two rows with different ids."""
    rows, batches = find_real_rows(shard), shard.arrays.batch_of_rows
    rows = rows[shard.arrays.piece_starts[rows] == 0]  # where pieces go on is seen at once
    if "row_indices" in shard.tensors:
        rows = rows[~_find_row_ends(shard)[rows]]
    if not len(rows):
        return None
    # Other batches that have this sequence too must not get it twice.
    names = [name for name in ("original_indices", "piece_starts") if name in shard.tensors]
    keys = [shard.tensors[name] for name in names]
    is_first = np.logical_and.reduce([key == key[rows[0]] for key in keys])
    others = np.setdiff1d(batches[is_first], batches[rows[0]])
    rows = rows[~np.isin(batches[rows], others)].tolist()
    first = shard.row(rows[0])
    different = [row for row in rows if not np.array_equal(shard.row(row), first)]
    if not different:
        return None
    # of the same length if possible, so that lengths alone do not show it
    pair = [rows[0], min(different, key=lambda row: len(shard.row(row)) != len(first))]
    changed: dict[str, np.ndarray] = {}
    for name in names:
        changed[name] = shard.tensors[name].copy()
        changed[name][pair] = shard.tensors[name][pair[::-1]]
    return changed


def move_batch_size(shard: Shard) -> dict[str, np.ndarray] | None:
    """Move one row from a step's batch size to the next step's, with the sum unchanged."""
    if len(shard.tensors["batch_sizes"]) < 2:
        return None
    batch_sizes = shard.tensors["batch_sizes"].copy()
    middle = (len(batch_sizes) - 1) // 2
    batch_sizes[middle : middle + 2] += [-1, 1]
    return {"batch_sizes": batch_sizes}


def move_border(shard: Shard) -> dict[str, np.ndarray] | None:
    """Move the last token of a sequence to the next one, with the largest length unchanged."""
    lengths, batches = shard.tensors["lengths"], shard.arrays.batch_of_rows
    longest = lengths.max()
    gives = (lengths > 1) & ((lengths < longest) | (np.sum(lengths == longest) > 1))
    takes = lengths < longest
    if shard.arrays.geometry.multiple > 1:
        return None  # what is padding would show it
    if "row_indices" in shard.tensors:  # the last of a row may go on elsewhere
        takes &= ~_find_row_ends(shard)
    gives &= ~_find_row_ends(shard)
    places = np.flatnonzero(gives[:-1] & takes[1:] & (batches[:-1] == batches[1:]))
    if not len(places):
        return None
    moved = lengths.copy()
    moved[places[0] : places[0] + 2] += [-1, 1]
    return {"lengths": moved}


def repeat_index(shard: Shard) -> dict[str, np.ndarray] | None:
    """Copy the original index of one row to another."""
    indices = shard.tensors["original_indices"].copy()
    rows = np.flatnonzero((indices >= 0) & (shard.arrays.piece_starts == 0))
    others = rows[indices[rows] != indices[rows[:1]]]
    if not len(others):
        return None
    indices[others[0]] = indices[rows[0]]
    return {"original_indices": indices}


def spoil_padding(shard: Shard) -> dict[str, np.ndarray] | None:
    """Write an id into padding."""
    table = shard.arrays.measure()
    batches = np.flatnonzero(table.num_cells > table.num_tokens)
    if not len(batches) or shard.max_id < 1:
        return None
    batch = shard.view(int(batches[0]))
    is_padding = np.ones(len(batch.data), bool)
    for row in range(len(batch.lengths)):
        is_padding[batch.find_cells(row)] = False
    data = shard.tensors["data"].copy()
    cell = shard.tensors["data_offsets"][batches[0]] + int(is_padding.argmax())
    data[cell] = 1 if shard.pad_id == 0 else 0
    return {"data": data}


def _find_row_ends(shard: Shard) -> np.ndarray:
    """Return whether each sequence is the last of its row, or of its batch, bool[rows]."""
    batches = shard.arrays.batch_of_rows
    ends = np.append(batches[1:] != batches[:-1], True)
    if "row_indices" in shard.tensors:
        rows = shard.tensors["row_indices"]
        ends[:-1] |= rows[1:] != rows[:-1]
    return ends


def _is_per_row(column: Column) -> bool:
    return not column.is_per_token


def _is_tags(column: Column) -> bool:
    return column.is_per_token and column.class_names is not None


def _is_targets(column: Column) -> bool:
    return column.name == TARGETS


def _is_text(column: Column) -> bool:
    return column.is_text


def _is_row_number(column: Column) -> bool:
    return not column.is_per_token and not column.is_text


DAMAGES = (
    Damage("changed id", "roundtrip", flip_id),
    Damage("swapped rows", "roundtrip", swap_rows),
    Damage("wrong batch_sizes entry", "structure", move_batch_size, needs="batch_sizes"),
    Damage("shifted sequence boundary", "roundtrip", move_border, needs="piece_starts"),
    Damage("duplicate index", "structure", repeat_index),
    Damage("id in padding", "structure", spoil_padding, needs="padding"),
    Damage("dropped row", "structure", drop_row),
    Damage("swapped batches", "structure", swap_batches, needs_plan=True),
    Damage("moved row index", "structure", move_row_index, needs="row_indices"),
    Damage("sequence not aligned", "structure", shift_sequence, needs="alignment"),
    Damage("wrong reset", "structure", flip_reset, needs="resets"),
    Damage("wrong next id", "structure", change_next_id, needs="next_ids"),
    Damage("swapped streams", "structure", swap_streams, needs="resets", needs_plan=True),
    Damage("padding in the middle", "structure", pad_middle, needs="resets"),
    damage_column("swapped column values", "roundtrip", swap_values, _is_per_row),
    damage_column("shifted text", "roundtrip", shift_text, _is_text),
    damage_column("moved tag", "roundtrip", move_values, _is_tags),
    damage_column(
        "value in filler row", "structure", spoil_filler, _is_row_number, "num_filler_rows"
    ),
    damage_column("tag in padding", "structure", spoil_column_padding, _is_tags, "padding"),
    damage_column("targets shifted by one", "roundtrip", move_values, _is_targets),
    damage_column("targets of another row", "roundtrip", swap_entries, _is_targets),
    damage_column("targets all zero", "structure", clear_entries, _is_targets),
    damage_column("target in padding", "structure", spoil_column_padding, _is_targets, "padding"),
)
