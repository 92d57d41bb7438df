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
    for name in _arrays(layout, filler="num_filler_rows" in tensors):
        start, end = index, index + 1
        if name in OFFSETS_OF:
            start, end = tensors[OFFSETS_OF[name]][index : index + 2]
        arrays[name] = tensors[name][start:end]
    return LAYOUTS[layout].from_arrays(arrays, padding_side=padding_side)


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
    data = batch.to_arrays()["data"]
    if len(data) and not 0 <= int(data.min()) <= int(data.max()) <= max_id:
        cell = int(((data < 0) | (data > max_id)).argmax())
        raise ValueError(f"id {data[cell]} at cell {cell}, expected ids from 0 to {max_id}")
