"""The work of one pack task: the sequences of some batches -> one shard file and its receipt."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.batching.row_ranges import RangeRows, RowRange
from seqpack_cli.errors import FolderError
from seqpack_cli.files.copy_marks import hashing_copies
from seqpack_cli.files.url import Place
from seqpack_cli.runs.progress import advance
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.shards.lay_out import ShardRows, take_rows
from seqpack_cli.shards.layouts import find_layout
from seqpack_cli.shards.shard_arrays import make_tensors
from seqpack_cli.shards.shard_file import write_shard_file
from seqpack_cli.shards.shard_manifest import describe_shard, has_filler, shard_name
from seqpack_cli.shards.store_rows import StoreRows
from seqpack_cli.tokens.token_store import TokenStore, open_store


@dataclass(frozen=True)
class ShardTask:
    """All that a worker needs to make one shard."""

    number: int
    folder: Place
    store: Place
    manifest: dict[str, Any]  # what the shard file says of itself
    rows: ShardRows | RangeRows  # or where they are found
    began: int | None = None  # the run, in ns: see `hashing_copies`

    def __str__(self) -> str:
        return shard_name(self.number)


def make_shard(task: ShardTask) -> tuple[int, dict[str, Any]]:
    """Make one shard and publish it with its receipt; give its number and receipt."""
    with hashing_copies(task.began):
        return task.number, _make_shard(task)


def _make_shard(task: ShardTask) -> dict[str, Any]:
    manifest = task.manifest
    store = open_store_once(task.store, manifest["tokens_blake3"], task.began)
    rows = _find_rows(task)
    tensors = make_tensors(manifest["layout"], rows, filler=has_filler(manifest))
    side, pad_id = manifest["padding_side"], manifest["pad_id"]
    layout = find_layout(manifest["layout"], pad_id=pad_id, padding_side=side)
    data = layout.iter_data(tensors, StoreRows(store, rows))
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
    return receipt


def count_rows(task: ShardTask) -> dict[str, int]:
    """Give the counts of a shard's entry in the manifest."""
    rows, manifest = task.rows, task.manifest
    runs = rows.runs
    num_tokens = runs.add_up(runs.num_tokens)
    num_filler_rows = runs.add_up(runs.num_filler_rows)
    num_begun = runs.add_up(runs.num_rows)
    num_rows, num_cells, num_split = num_begun + num_filler_rows, num_tokens, 0
    if manifest["layout"] == "padded":
        num_cells = runs.add_up((runs.num_rows + runs.num_filler_rows) * runs.widths)
    if isinstance(rows, ShardRows) and rows.piece_starts is not None:
        num_begun = int((rows.piece_starts == 0).sum())
        num_split = int((rows.piece_starts == manifest["options"]["max_tokens"]).sum())
    return {
        "num_batches": runs.num_batches,
        "num_rows": num_rows,
        "num_filler_rows": num_filler_rows,
        "num_sequences": num_begun,  # a split one counts where its first piece is
        "num_split_sequences": num_split,  # and here where its second is
        "num_tokens": num_tokens,
        "num_padding_cells": num_cells - num_tokens,
        "longest": int(runs.longest.max()),
    }


def _find_rows(task: ShardTask) -> ShardRows:
    """Give the rows of a task, found in the store unless the task has them."""
    rows = task.rows
    if isinstance(rows, ShardRows):
        return rows
    store = open_store_once(task.store, task.manifest["tokens_blake3"], task.began)
    found = _find_span_once(store, rows.span)
    taken = take_rows(rows, *found)
    num_tokens = np.add.reduceat(taken.lengths, taken.batch_offsets[:-1], dtype=np.int64)
    if not np.array_equal(num_tokens, rows.runs.expand().num_tokens):
        raise _changed(task.store)
    return taken


@functools.lru_cache(maxsize=1)
def _find_span_once(store: TokenStore, span: RowRange) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows that neighbours of a task have as well."""
    indices, lengths = span.find(store)
    if len(indices) != span.num_rows:
        raise _changed(store.path)
    return indices, lengths


def _counting(pieces: Iterator[np.ndarray], tokens_per_cell: float) -> Iterator[np.ndarray]:
    """Tell the progress of what is written."""
    for piece in pieces:
        yield piece
        advance(round(len(piece) * tokens_per_cell))


@functools.lru_cache(maxsize=1)
def open_store_once(path: Place, checksum: str, began: int | None) -> TokenStore:
    """Open the store of a run; kept by its checksum too, since a path may get another store."""
    del began  # another run opens it again, and hashes what it reads
    store = open_store(path, check_indices=False)  # the run has: each shard reads few of them
    if store.digest != checksum:
        raise _changed(path)
    return store


def _changed(path: Place) -> FolderError:
    return FolderError(f"{path}: changed since this run began", hint="run pack again")
