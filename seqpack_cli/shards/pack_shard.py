"""The work of one pack task: the sequences of some batches -> one shard file and its receipt."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.execution import advance
from seqpack_cli.run_folder import write_receipt
from seqpack_cli.shards.lay_out import ShardRows, iter_data, make_tensors
from seqpack_cli.shards.shard_file import write_shard_file
from seqpack_cli.shards.shard_manifest import describe_shard, has_filler, shard_name
from seqpack_cli.tokens.token_store import TokenStore, open_store


@dataclass(frozen=True)
class ShardTask:
    """All that a worker needs to make one shard."""

    number: int
    folder: Path
    store: Path
    manifest: dict[str, Any]  # what the shard file says of itself
    rows: ShardRows

    def __str__(self) -> str:
        return shard_name(self.number)


def make_shard(task: ShardTask) -> tuple[int, dict[str, Any]]:
    """Make one shard and publish it with its receipt; give its number and receipt."""
    manifest, rows = task.manifest, task.rows
    store = _open_store_once(task.store, manifest["tokens_sha256"])
    tensors = make_tensors(manifest["layout"], rows, filler=has_filler(manifest))
    data = iter_data(
        manifest["layout"],
        rows,
        tensors,
        store,
        pad_id=manifest["pad_id"],
        padding_side=manifest["padding_side"],
    )
    counts = count_rows(task)
    num_cells = int(tensors["data_offsets"][-1])
    path = task.folder / shard_name(task.number)
    written = write_shard_file(
        path,
        tensors,
        describe_shard(manifest),
        data=_counting(data, counts["num_tokens"] / num_cells),
        data_dtype=store.dtype,
    )
    receipt = {"name": path.name, **written, **counts}
    write_receipt(task.folder, path.stem, receipt)
    return task.number, receipt


def count_rows(task: ShardTask) -> dict[str, int]:
    """Give the counts of a shard's entry in the manifest."""
    rows, manifest = task.rows, task.manifest
    num_tokens = int(rows.lengths.sum(dtype=np.int64))
    num_rows = np.diff(rows.batch_offsets) + rows.num_filler_rows
    is_padded = manifest["layout"] == "padded"
    num_cells = int((num_rows * rows.widths).sum()) if is_padded else num_tokens
    num_filler_rows = int(rows.num_filler_rows.sum())
    num_begun, num_split = len(rows.indices), 0
    if rows.piece_starts is not None:
        num_begun = int((rows.piece_starts == 0).sum())
        num_split = int((rows.piece_starts == manifest["options"]["max_tokens"]).sum())
    return {
        "num_batches": len(rows.widths),
        "num_rows": len(rows.indices) + num_filler_rows,
        "num_filler_rows": num_filler_rows,
        "num_sequences": num_begun,  # a split one counts where its first piece is
        "num_split_sequences": num_split,  # and here where its second is
        "num_tokens": num_tokens,
        "num_padding_cells": num_cells - num_tokens,
        "longest": int(rows.lengths.max()),
    }


def _counting(pieces: Iterator[np.ndarray], tokens_per_cell: float) -> Iterator[np.ndarray]:
    """Tell the progress of what is written."""
    for piece in pieces:
        yield piece
        advance(round(len(piece) * tokens_per_cell))


@functools.lru_cache(maxsize=1)
def _open_store_once(path: Path, sha256: str) -> TokenStore:
    """Open the store of a run; kept by its sha256 too, since a path may get another store."""
    store = open_store(path)
    if store.sha256 != sha256:
        raise FolderError(f"{path}: changed since this run began", hint="run pack again")
    return store
