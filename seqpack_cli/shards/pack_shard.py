"""The work of one pack task: the sequences of some batches -> one shard file and its receipt."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.execution import advance
from seqpack_cli.run_folder import write_receipt
from seqpack_cli.shards.layouts import LAYOUTS, join_batches
from seqpack_cli.shards.shard_file import write_shard_file
from seqpack_cli.shards.shard_set import describe_shard, shard_name
from seqpack_cli.tokens.token_store import TokenStore, open_store


@dataclass(frozen=True)
class ShardTask:
    """All that a worker needs to make one shard."""

    number: int
    folder: Path
    store: Path
    manifest: dict[str, Any]  # what the shard file says of itself
    indices: np.ndarray  # int64, original indices, batch after batch
    batch_offsets: np.ndarray  # into indices


def make_shard(task: ShardTask) -> tuple[int, dict[str, Any]]:
    """Make one shard and publish it with its receipt; give its number and receipt."""
    store = _open_store_once(task.store, task.manifest["tokens_sha256"])
    layout = LAYOUTS[task.manifest["layout"]]
    batches = []
    for start, end in zip(task.batch_offsets[:-1], task.batch_offsets[1:], strict=True):
        indices = task.indices[start:end]
        rows = [store[index] for index in indices]
        batches.append(layout.lay_out(rows, indices, pad_id=task.manifest["pad_id"]))
        advance(sum(map(len, rows)))
    path = task.folder / shard_name(task.number)
    tensors = join_batches(task.manifest["layout"], batches)
    written = write_shard_file(path, tensors, describe_shard(task.manifest))
    receipt = {
        "name": path.name,
        **written,
        "num_batches": len(batches),
        "num_sequences": len(task.indices),
        "num_tokens": int(tensors["lengths"].sum()),
        "num_padding_cells": sum(batch.count_padding() for batch in batches),
        "longest": int(tensors["lengths"].max()),
    }
    write_receipt(task.folder, path.stem, receipt)
    return task.number, receipt


@functools.lru_cache(maxsize=1)
def _open_store_once(path: Path, sha256: str) -> TokenStore:
    """Open the store of a run; kept by its sha256 too, since a path may get another store."""
    store = open_store(path)
    if store.sha256 != sha256:
        raise FolderError(f"{path}: changed since this run began", hint="run pack again")
    return store
