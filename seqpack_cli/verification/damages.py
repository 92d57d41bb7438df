"""Damages to the arrays of one shard, in memory: what the self-test must see found.

Each takes a sound shard and gives the arrays that change, as copies, or None where the shard has no
place for such a damage. They are what bugs and bad disks do while sizes still fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.ranges import expand_ranges, to_offsets
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_arrays import OFFSETS_OF

MAX_ROWS = 1000  # looked at for one that differs


@dataclass(frozen=True)
class Damage:
    """One kind of damage."""

    name: str
    level: str  # that must find it
    layouts: tuple[str, ...]
    change: Callable[[Shard], dict[str, np.ndarray] | None]
    needs_plan: bool = False


def flip_id(shard: Shard) -> dict[str, np.ndarray] | None:
    """Make one token another."""
    if shard.max_id < 1:
        return None
    data = shard.tensors["data"].copy()
    cell = _first_cells(shard)[-1]
    data[cell] = (int(data[cell]) + 1) % (shard.max_id + 1)
    return {"data": data}


def swap_rows(shard: Shard) -> dict[str, np.ndarray] | None:
    """Let two rows of different ids stand for each other's sequence."""
    rows = np.flatnonzero(shard.tensors["original_indices"] >= 0).tolist()
    first = shard.row(rows[0])
    different = [row for row in rows[1:MAX_ROWS] if not np.array_equal(shard.row(row), first)]
    if not different:
        return None
    # one of the same length, if there is any: lengths alone do not tell then
    pair = [rows[0], min(different, key=lambda row: len(shard.row(row)) != len(first))]
    names = [name for name in ("original_indices", "piece_starts") if name in shard.tensors]
    changed: dict[str, np.ndarray] = {}
    for name in names:
        changed[name] = shard.tensors[name].copy()
        changed[name][pair] = shard.tensors[name][pair[::-1]]
    return changed


def move_batch_size(shard: Shard) -> dict[str, np.ndarray] | None:
    """Count a row at one step later than it is, with the sum unchanged."""
    if len(shard.tensors["batch_sizes"]) < 2:
        return None
    batch_sizes = shard.tensors["batch_sizes"].copy()
    middle = (len(batch_sizes) - 1) // 2
    batch_sizes[middle : middle + 2] += [-1, 1]
    return {"batch_sizes": batch_sizes}


def move_border(shard: Shard) -> dict[str, np.ndarray] | None:
    """Give the last token of a sequence to the one behind it, the longest as long as before."""
    lengths, batches = shard.tensors["lengths"], _row_batches(shard)
    longest = lengths.max()
    gives = (lengths > 1) & ((lengths < longest) | (np.sum(lengths == longest) > 1))
    takes = lengths < longest
    places = np.flatnonzero(gives[:-1] & takes[1:] & (batches[:-1] == batches[1:]))
    if not len(places):
        return None
    moved = lengths.copy()
    moved[places[0] : places[0] + 2] += [-1, 1]
    return {"lengths": moved}


def repeat_index(shard: Shard) -> dict[str, np.ndarray] | None:
    """Let a row stand for the sequence of another."""
    indices = shard.tensors["original_indices"].copy()
    starts = shard.tensors.get("piece_starts", np.zeros_like(indices))
    rows = np.flatnonzero((indices >= 0) & (starts == 0))
    if len(rows) < 2:
        return None
    indices[rows[1]] = indices[rows[0]]
    return {"original_indices": indices}


def spoil_padding(shard: Shard) -> dict[str, np.ndarray] | None:
    """Put an id where padding belongs."""
    if shard.max_id < 1:
        return None
    starts, widths = _row_cells(shard)
    rows = np.flatnonzero(shard.tensors["lengths"] < widths)
    if not len(rows):
        return None
    row = rows[0]
    inside = 0 if shard.padding_side == "left" else int(widths[row]) - 1
    data = shard.tensors["data"].copy()
    data[starts[row] + inside] = 1 if shard.pad_id == 0 else 0
    return {"data": data}


def drop_row(shard: Shard) -> dict[str, np.ndarray] | None:
    """Take the last row of a batch out of all arrays, so that they still fit together."""
    fillers = shard.tensors.get("num_filler_rows", np.zeros(1, np.int64))
    counts = np.diff(shard.tensors["sequence_offsets"]) - fillers
    batches = np.flatnonzero(counts > 1)
    if not len(batches):
        return None
    batch = batches[-1]
    row = int(shard.tensors["sequence_offsets"][batch] + counts[batch]) - 1
    length = int(shard.tensors["lengths"][row])
    changed: dict[str, np.ndarray] = {
        name: np.delete(shard.tensors[name], row)
        for name in ("lengths", "original_indices", "piece_starts")
        if name in shard.tensors
    }
    if shard.layout == "packed":
        batch_sizes = shard.tensors["batch_sizes"].copy()
        first_step = int(shard.tensors["step_offsets"][batch])
        steps = slice(first_step, first_step + length)
        inside = np.cumsum(shard.tensors["batch_sizes"][first_step : first_step + length]) - 1
        cells = shard.tensors["data_offsets"][batch] + inside
        batch_sizes[steps] -= 1
        changed["batch_sizes"] = batch_sizes
    else:
        starts, widths = _row_cells(shard) if shard.layout == "padded" else _varlen_cells(shard)
        cells = np.arange(starts[row], starts[row] + widths[row])
    changed["data"] = np.delete(shard.tensors["data"], cells)
    for name, number in (("sequence_offsets", 1), ("data_offsets", len(cells))):
        changed[name] = shard.tensors[name].copy()
        changed[name][batch + 1 :] -= number
    return changed


def swap_batches(shard: Shard) -> dict[str, np.ndarray] | None:
    """Put the first two batches into each other's place, whole."""
    if len(shard) < 2:
        return None
    changed: dict[str, np.ndarray] = {}
    for name, array in shard.tensors.items():
        if name.endswith("_offsets"):
            changed[name] = array.copy()
            changed[name][1] = array[2] - array[1]
            continue
        offsets = shard.tensors[OFFSETS_OF[name]] if name in OFFSETS_OF else np.arange(3)
        middle, end = offsets[1:3].tolist()
        changed[name] = np.concatenate([array[middle:end], array[:middle], array[end:]])
    return changed


ALL = tuple(LAYOUTS)
DAMAGES = (
    Damage("flipped id", "roundtrip", ALL, flip_id),
    Damage("swapped rows", "roundtrip", ALL, swap_rows),
    Damage("moved batch_sizes entry", "structure", ("packed",), move_batch_size),
    Damage("moved border of a sequence", "roundtrip", ("varlen",), move_border),
    Damage("index that stands twice", "structure", ALL, repeat_index),
    Damage("id in the padding", "structure", ("padded",), spoil_padding),
    Damage("dropped row", "structure", ALL, drop_row),
    Damage("swapped batches", "structure", ALL, swap_batches, needs_plan=True),
)


def _row_batches(shard: Shard) -> np.ndarray:
    """Give the batch of each row."""
    counts = np.diff(shard.tensors["sequence_offsets"])
    return np.repeat(np.arange(len(counts)), counts)


def _row_cells(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """Give where each row of `padded` begins in data, and its width."""
    batches = _row_batches(shard)
    widths = shard.tensors["widths"][batches]
    inside = np.arange(len(batches)) - shard.tensors["sequence_offsets"][batches]
    return shard.tensors["data_offsets"][batches] + inside * widths, widths


def _varlen_cells(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """Give where each sequence of `varlen` begins in data, and its length."""
    return to_offsets(shard.tensors["lengths"])[:-1], shard.tensors["lengths"]


def _first_cells(shard: Shard) -> np.ndarray:
    """Give the cell of the first token of each row, without filler."""
    real = shard.tensors["original_indices"] >= 0
    if shard.layout == "packed":
        counts = np.diff(shard.tensors["sequence_offsets"])
        return expand_ranges(shard.tensors["data_offsets"][:-1], counts)
    if shard.layout == "varlen":
        return _varlen_cells(shard)[0]
    starts, widths = _row_cells(shard)
    if shard.padding_side == "left":
        starts = starts + widths - shard.tensors["lengths"]
    first: np.ndarray = starts[real]
    return first
