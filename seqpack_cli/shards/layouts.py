"""The layouts by name, and how the batches of a shard share its flat arrays.

A batch of any layout is a few flat arrays; a shard holds those of all its batches, with offsets
that say where each batch begins, and one batch is taken out again as views. All is checked here in
numpy before torch can see it: a wrong `batch_sizes` makes torch write out of bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.varlen import VarlenBatch

Batch = PackedBatch | PaddedBatch | VarlenBatch
BatchType = type[PackedBatch] | type[PaddedBatch] | type[VarlenBatch]

LAYOUTS: dict[str, BatchType] = {
    "packed": PackedBatch,
    "padded": PaddedBatch,
    "varlen": VarlenBatch,
}

# Arrays with the same number of entries in a batch share their offsets; others have one a batch.
OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "piece_starts": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}

# The arrays of each layout by the offsets that they share, None where a batch has one entry.
_GROUPS = {
    layout: [
        (offsets, [name for name in batch_type.ARRAYS if OFFSETS_OF.get(name) == offsets])
        for offsets in dict.fromkeys(map(OFFSETS_OF.get, batch_type.ARRAYS))
    ]
    for layout, batch_type in LAYOUTS.items()
}


def tensor_names(layout: str, *, filler: bool) -> list[str]:
    """Name the arrays of a shard in file order: int64 all but the last, the ids.

    Args:
        filler: whether batches are filled up with empty rows, which are then counted.
    """
    arrays = [name for name in _arrays(layout, filler=filler) if name != "data"]
    offsets = dict.fromkeys(OFFSETS_OF[name] for name in [*arrays, "data"] if name in OFFSETS_OF)
    return [*arrays, *offsets, "data"]


def view_batch(
    layout: str, tensors: Mapping[str, np.ndarray], index: int, *, padding_side: str = "right"
) -> Batch:
    """Take one batch out of a shard whose offsets were checked; nothing is copied."""
    arrays = {}
    for offsets, names in _GROUPS[layout]:
        start, end = tensors[offsets][index : index + 2].tolist() if offsets else (index, index + 1)
        for name in names:
            arrays[name] = tensors[name][start:end]
    if "num_filler_rows" in tensors:
        arrays["num_filler_rows"] = tensors["num_filler_rows"][index : index + 1]
    return LAYOUTS[layout].from_arrays(arrays, padding_side=padding_side)


def view_batches(
    layout: str, tensors: Mapping[str, np.ndarray], first: int, last: int
) -> dict[str, np.ndarray]:
    """Take some batches out of a shard as if they were one; all but the offsets are views."""
    views = {}
    for offsets, names in _GROUPS[layout]:
        start, end = first, last
        if offsets:
            begins = tensors[offsets][first : last + 1]
            start, end = int(begins[0]), int(begins[-1])
            views[offsets] = begins - start
        for name in names:
            views[name] = tensors[name][start:end]
    if "num_filler_rows" in tensors:
        views["num_filler_rows"] = tensors["num_filler_rows"][first:last]
    return views


def check_offsets(layout: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the batches lie one after another and fill the shard's arrays."""
    num_batches = len(tensors["data_offsets"]) - 1
    for name in _arrays(layout, filler="num_filler_rows" in tensors):
        num_entries = len(tensors[name])
        if name not in OFFSETS_OF:
            if num_entries != num_batches:
                raise ValueError(f"{name} has {num_entries} entries for {num_batches} batches")
            continue
        offsets = tensors[OFFSETS_OF[name]]
        if num_batches < 1 or len(offsets) != num_batches + 1:
            raise ValueError(
                f"{OFFSETS_OF[name]} has {len(offsets)} entries, {num_batches} batches"
            )
        if offsets[0] != 0 or offsets[-1] != num_entries or (offsets[1:] <= offsets[:-1]).any():
            raise ValueError(
                f"{OFFSETS_OF[name]} do not rise from 0 to the {num_entries} of {name}"
            )


def _arrays(layout: str, *, filler: bool) -> tuple[str, ...]:
    return (*LAYOUTS[layout].ARRAYS, "num_filler_rows") if filler else LAYOUTS[layout].ARRAYS


def check_ids(batch: Batch, *, max_id: int) -> None:
    """Raise ValueError unless all ids are from 0 to max_id, which an embedding on a GPU needs."""
    ids = view_ids(batch)
    if not is_in_range(ids, max_id):
        data = ids.reshape(-1)
        cell = int(((data < 0) | (data > max_id)).argmax())
        raise ValueError(f"id {data[cell]} at cell {cell}, expected ids from 0 to {max_id}")


def view_ids(batch: Batch) -> np.ndarray:
    """Give the ids of a batch and its padding, [S] or [B, width]."""
    return batch.ids if isinstance(batch, PaddedBatch) else batch.data


def is_in_range(ids: np.ndarray, max_id: int) -> bool:
    """Say whether all ids are from 0 to max_id."""
    return not ids.size or (
        np.maximum.reduce(ids, axis=None) <= max_id
        and (ids.dtype.kind == "u" or np.minimum.reduce(ids, axis=None) >= 0)
    )
