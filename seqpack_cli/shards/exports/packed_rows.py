"""The rows of shards in which several sequences share a row, in the order of the shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.shards.exports.source import IDS_PER_BLOCK, CheckedFiles
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns.made_columns import TARGETS


class Rows(NamedTuple):
    """Some consecutive rows, without padding."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64[N], of the rows
    sequence_lengths: np.ndarray  # int64[M], of the sequences and pieces in them
    num_sequences: np.ndarray  # int64[N], in each row
    targets: np.ndarray | None  # uint8[S], which ids are targets; None if all are


def shares_rows(shards: ShardSet) -> bool:
    """Return whether several sequences share a row."""
    return LAYOUTS[shards.layout].shares_rows


def iter_rows(shards: ShardSet, files: CheckedFiles, *, check: bool = False) -> Iterator[Rows]:
    """Yield all rows, about four million ids at a time.

    Args:
        check: compare every file with its checksum first; without it, notice at the end that one
            has changed since.

    Raises:
        FolderError: a shard is damaged, or was changed.
    """
    if check:
        files.check(shards.path, shards.manifest["shards"])
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        for index in np.flatnonzero(shard.find_unsound()).tolist():
            shard[index]  # raises the error that describes what is wrong
        yield from _iter_shard(shard)
        let_pages_go(shard.tensors["data"])
    if not check:
        files.check_again(shards.path, shards.manifest["shards"])


def _iter_shard(shard: Shard) -> Iterator[Rows]:
    tensors, column = shard.tensors, shard.columns.get(TARGETS)
    cell_offsets, row_offsets = tensors["data_offsets"], tensors["sequence_offsets"]
    first = 0
    while first < len(shard):
        last = int(np.searchsorted(cell_offsets, cell_offsets[first] + IDS_PER_BLOCK, "right")) - 1
        last = max(last, first + 1)
        cells = slice(int(cell_offsets[first]), int(cell_offsets[last]))
        yield Rows(
            tensors["data"][cells],
            np.diff(cell_offsets[first : last + 1]),
            tensors["lengths"][int(row_offsets[first]) : int(row_offsets[last])],
            np.diff(row_offsets[first : last + 1]),
            None if column is None else tensors[column.tensor_name][cells],
        )
        first = last
