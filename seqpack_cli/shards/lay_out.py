"""The rows of one shard -> its arrays, all batches at once.

The small arrays follow from the plan. The ids are read from the token store, those of a whole shard
in memory: packed ones are then laid out piece by piece, each hashed and written while it is in the
cache; padded and varlen ones lie in their places already.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.errors import FolderError
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import is_in_range, tensor_names
from seqpack_cli.shards.padded import place_rows
from seqpack_cli.shards.time_steps import count_steps, iter_steps
from seqpack_cli.tokens.read_rows import copy_rows, read_rows
from seqpack_cli.tokens.token_store import TokenStore

CELLS_PER_PIECE = 1 << 18  # hashed and written before the next


def make_tensors(layout: str, rows: ShardRows, *, filler: bool) -> dict[str, np.ndarray]:
    """Make all arrays of a shard but `data`, int64, in file order.

    Args:
        filler: whether batches are filled up with empty rows.
    """
    tensors = make_row_tensors(layout, rows, filler=filler)
    if layout == "packed":
        steps = count_steps(tensors["lengths"], rows.batch_offsets)
        tensors["batch_sizes"], tensors["step_offsets"] = steps
    names = tensor_names(layout, filler=filler)[:-1]
    return {name: tensors[name].astype(np.int64, copy=False) for name in names}


def make_row_tensors(layout: str, rows: ShardRows, *, filler: bool) -> dict[str, np.ndarray]:
    """Make the arrays of a shard from which the others follow: its rows, batches and widths.

    Args:
        filler: as for make_tensors.
    """
    lengths = rows.lengths.astype(np.int64)
    num_tokens = np.add.reduceat(lengths, rows.batch_offsets[:-1])
    tensors = {
        "lengths": lengths,
        "original_indices": rows.indices,
        "sequence_offsets": rows.batch_offsets,
        "data_offsets": to_offsets(num_tokens),
    }
    if layout == "varlen":
        starts = rows.piece_starts
        tensors["piece_starts"] = np.zeros_like(lengths) if starts is None else starts
    elif layout == "padded":
        num_rows = np.diff(rows.batch_offsets) + rows.num_filler_rows
        ends = np.repeat(rows.batch_offsets[1:], rows.num_filler_rows)
        tensors["lengths"] = np.insert(lengths, ends, 0)
        tensors["original_indices"] = np.insert(rows.indices, ends, -1)
        tensors["sequence_offsets"] = to_offsets(num_rows)
        tensors["data_offsets"] = to_offsets(num_rows * rows.widths)
        tensors["widths"] = rows.widths
        if filler:
            tensors["num_filler_rows"] = rows.num_filler_rows
    return tensors


def iter_data(
    layout: str,
    rows: ShardRows,
    tensors: dict[str, np.ndarray],
    store: TokenStore,
    *,
    pad_id: int,
    padding_side: str,
) -> Iterator[np.ndarray]:
    """Yield the ids of a shard in pieces, as they stand in `data`."""
    lengths = rows.lengths.astype(np.int64)
    if layout == "packed":
        ids, starts = read_rows(store, rows.indices, lengths)
        check_store_ids(ids, store)
        steps = (tensors["batch_sizes"], tensors["step_offsets"])
        yield from iter_steps(ids, starts, rows.batch_offsets, *steps)
        return
    cells = np.full(int(tensors["data_offsets"][-1]), pad_id, store.dtype)
    begins = np.cumsum(lengths) - lengths
    if layout == "padded":
        num_rows = np.diff(tensors["sequence_offsets"])
        widths = np.repeat(rows.widths, num_rows)
        begins = place_rows(tensors["lengths"], widths, padding_side=padding_side)
        begins = begins[tensors["original_indices"] >= 0]
    copy_rows(store, rows.indices, lengths, cells, begins, rows.piece_starts)
    check_store_ids(cells, store)
    for start in range(0, len(cells), CELLS_PER_PIECE):
        yield cells[start : start + CELLS_PER_PIECE]


def check_store_ids(ids: np.ndarray, store: TokenStore) -> None:
    """Raise if a damaged store holds an id that its tokenizer does not give; 0.1 ns an id."""
    if is_in_range(ids, store.max_id):
        return
    smallest = int(ids.min())
    found = smallest if smallest < 0 else int(ids.max())
    raise FolderError(
        f"{store.path}: holds id {found}, its manifest has ids from 0 to {store.max_id}",
        hint="the store was changed or damaged: run tokenize --overwrite",
    )
