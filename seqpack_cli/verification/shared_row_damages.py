"""Damages to rows that several sequences share, and to streams, as `damages` has them for others.

Each takes a sound shard and returns copies of the arrays that change, or None if the shard cannot
have such a damage.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.verification.column_damages import to_arrays

Arrays = dict[str, np.ndarray]


def flip_reset(shard: Shard) -> Arrays | None:
    """Mark a piece that goes on as one that begins, or, if none goes on, the reverse."""
    resets = shard.tensors["resets"].copy()
    inside = int(shard.tensors["sequence_offsets"][1])  # after the first batch of the shard
    if inside == len(resets):
        return None
    places = inside + np.flatnonzero(resets[inside:] == 0)
    place = int(places[0]) if len(places) else inside
    resets[place] = 1 - resets[place]
    return {"resets": resets}


def change_next_id(shard: Shard) -> Arrays | None:
    """Change the id that a stream goes on with in the next batch."""
    next_ids = shard.tensors["next_ids"].copy()
    inside = shard.tensors["sequence_offsets"][-2]  # what follows the shard is in another one
    places = np.flatnonzero(next_ids[:inside] >= 0)
    if not len(places) or shard.max_id < 1:
        return None
    next_ids[places[0]] = (next_ids[places[0]] + 1) % (shard.max_id + 1)
    return {"next_ids": next_ids}


def move_row_index(shard: Shard) -> Arrays | None:
    """Move the last sequence of a row to the next one, in row_indices alone."""
    rows = shard.tensors["row_indices"].copy()
    is_last = np.append((rows[1:] != rows[:-1]) | (np.diff(shard.arrays.batch_of_rows) > 0), True)
    rows[np.flatnonzero(is_last)[0]] += 1
    return {"row_indices": rows}


def pad_middle(shard: Shard) -> Arrays | None:
    """Turn the last token of a stream into padding, before the last batch."""
    if len(shard) < 3:
        return None
    last = int(shard.tensors["sequence_offsets"][1]) - 1
    lengths, data = shard.tensors["lengths"].copy(), shard.tensors["data"].copy()
    if lengths[last] < 2:
        return None
    data[shard.arrays.find_cells(np.array([last]))[-1]] = shard.pad_id
    lengths[last] -= 1
    return {"lengths": lengths, "data": data}


def shift_sequence(shard: Shard) -> Arrays | None:
    """Move a sequence by one cell into the padding that follows it."""
    lengths, multiple = shard.tensors["lengths"], shard.arrays.geometry.multiple
    rows = np.flatnonzero(lengths % multiple)
    for row in rows.tolist():
        cells, data = shard.arrays.find_cells(np.array([row])), shard.tensors["data"].copy()
        data[cells + 1] = data[cells]
        data[cells[0]] = shard.pad_id
        if not np.array_equal(data, shard.tensors["data"]):
            return {"data": data}
    return None


def swap_streams(shard: Shard) -> Arrays | None:
    """Exchange the first two streams of the first batch in which they differ."""
    for number in range(len(shard)):
        changed = _swap_streams(shard, number)
        if changed is not None:
            return changed
    return None


def _swap_streams(shard: Shard, number: int) -> Arrays | None:
    tensors, batch = shard.tensors, shard.view(number)
    first, last = tensors["sequence_offsets"][number : number + 2].tolist()
    streams = tensors["row_indices"][first:last]
    counts = np.bincount(streams, minlength=2)[:2]
    if not counts.all():
        return None
    order = np.arange(len(tensors["lengths"]))
    middle, end = first + int(counts[0]), first + int(counts.sum())
    order[first:end] = np.r_[middle:end, first:middle]
    changed = {
        name: tensors[name][order]
        for name in ("lengths", "original_indices", "piece_starts", "resets", "next_ids")
    }
    if np.array_equal(changed["original_indices"], tensors["original_indices"]):
        return None
    rows = tensors["row_indices"].copy()
    rows[first:end] = np.repeat([0, 1], counts[::-1])
    changed["row_indices"] = rows
    cells = slice(*tensors["data_offsets"][number : number + 2].tolist())
    names = ["data"]
    for column in shard.columns.values():
        if column.is_per_token:
            names.append(column.tensor_name)
        else:
            changed |= to_arrays(column, column.view(tensors).take(order))
    for name in names:
        values = tensors[name].copy()
        steps = values[cells].reshape(batch.shape)
        steps[:, :2] = steps[:, 1::-1].copy()
        changed[name] = values
    return changed
