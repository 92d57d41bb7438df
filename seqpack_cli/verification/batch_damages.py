"""Damages that remove a row of a shard, or exchange two batches, in all arrays.

As in `damages`, each takes a sound shard and returns copies of the arrays that change, or None if
the shard cannot have such a damage.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.shards.layouts import OFFSETS_OF
from seqpack_cli.shards.shard import Shard
from seqpack_cli.verification.column_damages import drop_from_columns, join_columns

MAX_BATCHES = 1000  # that are searched for one that differs from the next


def drop_row(shard: Shard) -> dict[str, np.ndarray] | None:
    """Remove the last row of a batch from all arrays, so that they still fit together."""
    tensors = shard.tensors
    batches = np.flatnonzero(shard.arrays.measure().num_real_rows > 1)
    if not len(batches):
        return None
    number = int(batches[-1])
    batch = shard.view(number)
    inside = len(batch.lengths) - batch.num_filler_rows - 1
    row = int(tensors["sequence_offsets"][number]) + inside
    changed: dict[str, np.ndarray] = {
        name: np.delete(tensors[name], row)
        for name, offsets in OFFSETS_OF.items()
        if name in tensors and offsets == "sequence_offsets"
    }
    if "batch_sizes" in tensors:
        changed["batch_sizes"] = tensors["batch_sizes"].copy()
        first_step = int(tensors["step_offsets"][number])
        changed["batch_sizes"][first_step : first_step + int(batch.lengths[inside])] -= 1
    geometry, cells = shard.arrays.geometry, batch.find_cells(inside)
    keeps_cells = geometry.num_rows is not None  # rows of one length, which others may share
    if len(batch.shape) == 2 and not keeps_cells:  # a rectangle: with its padding
        cells = np.arange(batch.data.size).reshape(batch.shape)[inside]
    if geometry.multiple > 1 and not keeps_cells:
        cells = np.arange(
            cells[0], cells[0] - (-len(cells) // geometry.multiple) * geometry.multiple
        )
    cells = cells + tensors["data_offsets"][number]
    changed["data"] = tensors["data"].copy()
    changed["data"][cells] = shard.pad_id
    if not keeps_cells:
        changed["data"] = np.delete(tensors["data"], cells)
    changed |= drop_from_columns(shard, row, cells, keeps_cells=keeps_cells)
    num_cells = 0 if keeps_cells else len(cells)
    for name, count in (("sequence_offsets", 1), ("data_offsets", num_cells)):
        changed[name] = tensors[name].copy()
        changed[name][number + 1 :] -= count
    return changed


def swap_batches(shard: Shard) -> dict[str, np.ndarray] | None:
    """Swap the first two neighboring batches that differ."""
    numbers = range(min(len(shard), MAX_BATCHES) - 1)
    first = next((number for number in numbers if _differs_from_next(shard, number)), None)
    return None if first is None else exchange_batches(shard, first)


def exchange_batches(shard: Shard, first: int) -> dict[str, np.ndarray]:
    """Swap a batch and the next one."""
    cuts = ((0, first), (first + 1, first + 2), (first, first + 1), (first + 2, len(shard)))
    parts = [shard.arrays.cut(*ends).tensors for ends in cuts]
    changed = join_columns(shard, parts)
    for name, array in shard.tensors.items():
        if name.endswith("_offsets"):
            changed[name] = array.copy()
            changed[name][first + 1] = array[first] + array[first + 2] - array[first + 1]
        elif name not in changed:
            changed[name] = np.concatenate([part[name] for part in parts])
    return changed


def _differs_from_next(shard: Shard, number: int) -> bool:
    """Return whether a batch and the next one have different sequences, or other pieces."""
    first, middle, last = shard.tensors["sequence_offsets"][number : number + 3].tolist()
    return not all(
        np.array_equal(rows[first:middle], rows[middle:last])
        for rows in (shard.tensors["original_indices"], shard.arrays.piece_starts)
    )
