"""The layouts by name, and how the batches of a shard share its flat arrays.

A batch of any layout is a few flat arrays; a shard joins those of all its batches, with offsets
that say where each batch begins, and takes one batch out again as views. All is checked here in
numpy before torch can see it: a wrong `batch_sizes` makes torch write out of bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch

Batch = PackedBatch | PaddedBatch
BatchType = type[PackedBatch] | type[PaddedBatch]

LAYOUTS: dict[str, BatchType] = {"packed": PackedBatch, "padded": PaddedBatch}

# Arrays with the same number of entries in a batch share their offsets; others have one a batch.
OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}


def tensor_names(layout: str) -> list[str]:
    """Name the arrays of a shard in file order: int64 all but the last, the ids."""
    arrays = [name for name in LAYOUTS[layout].ARRAYS if name != "data"]
    offsets = dict.fromkeys(OFFSETS_OF[name] for name in [*arrays, "data"] if name in OFFSETS_OF)
    return [*arrays, *offsets, "data"]


def join_batches(layout: str, batches: Sequence[Batch]) -> dict[str, np.ndarray]:
    """Join the arrays of batches into those of a shard, in file order."""
    parts = [batch.to_arrays() for batch in batches]
    tensors: dict[str, np.ndarray] = {}
    for name in LAYOUTS[layout].ARRAYS:
        tensors[name] = np.concatenate([part[name] for part in parts])
        if name in OFFSETS_OF:
            counts = [len(part[name]) for part in parts]
            tensors[OFFSETS_OF[name]] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return {name: tensors[name] for name in tensor_names(layout)}


def view_batch(layout: str, tensors: Mapping[str, np.ndarray], index: int) -> Batch:
    """Take one batch out of a shard whose offsets were checked; nothing is copied."""
    arrays = {}
    for name in LAYOUTS[layout].ARRAYS:
        start, end = index, index + 1
        if name in OFFSETS_OF:
            start, end = tensors[OFFSETS_OF[name]][index : index + 2]
        arrays[name] = tensors[name][start:end]
    return LAYOUTS[layout].from_arrays(arrays)


def check_offsets(layout: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the batches lie one after another and fill the shard's arrays."""
    num_batches = len(tensors["data_offsets"]) - 1
    for name in LAYOUTS[layout].ARRAYS:
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


def check_ids(batch: Batch, *, max_id: int) -> None:
    """Raise ValueError unless all ids are from 0 to max_id, which an embedding on a GPU needs."""
    data = batch.to_arrays()["data"]
    if len(data) and not 0 <= int(data.min()) <= int(data.max()) <= max_id:
        cell = int(((data < 0) | (data > max_id)).argmax())
        raise ValueError(f"id {data[cell]} at cell {cell}, expected ids from 0 to {max_id}")
