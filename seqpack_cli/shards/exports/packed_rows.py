"""The rows of shards in which several sequences share a row, in the order of the shards.

Padding is left out: that between aligned sequences, that at the end of a row, and rows that are all
padding. Streams have no rows of their own: a row goes on in the next batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.exports.source import CheckedFiles
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS


class Rows(NamedTuple):
    """Some consecutive rows, without padding."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64[N], of the rows
    sequence_lengths: np.ndarray  # int64[M], of the sequences and pieces in them
    num_sequences: np.ndarray  # int64[N], in each row
    targets: np.ndarray | None  # uint8[S], which ids are targets; None if all are


def has_packed_rows(shards: ShardSet) -> bool:
    """Return whether several sequences share a row, and each row can be taken alone."""
    rules = LAYOUTS[shards.layout]
    return rules.shares_rows and not rules.carries_state


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
    cell_offsets, column = shard.tensors["data_offsets"], shard.columns.get(TARGETS)
    first = 0
    while first < len(shard):
        most = cell_offsets[first] + LIMITS.ids_per_export
        last = max(int(np.searchsorted(cell_offsets, most, "right")) - 1, first + 1)
        some = shard.arrays.cut(first, last)
        lengths, num_sequences = some.tensors["lengths"], _count_sequences(some)
        yield Rows(
            _take_tokens(some, "data"),
            np.add.reduceat(lengths, to_offsets(num_sequences)[:-1]),
            lengths,
            num_sequences,
            None if column is None else _take_tokens(some, column.tensor_name),
        )
        first = last


def _count_sequences(batches: ShardArrays) -> np.ndarray:
    """Count the sequences of each row that has some, int64[rows]."""
    if "row_indices" not in batches.tensors:  # a batch is one row
        return batches.num_rows
    rows, batch_of = batches.tensors["row_indices"], batches.batch_of_rows
    is_first = (rows[1:] != rows[:-1]) | (batch_of[1:] != batch_of[:-1])
    return np.diff(np.flatnonzero(np.concatenate([[True], is_first, [True]])))


def _take_tokens(batches: ShardArrays, name: str) -> np.ndarray:
    """Return the values of all tokens of an array that is laid out as `data` is."""
    values = batches.tensors[name]
    return values[batches.mask_tokens()] if batches.layout.has_padding else values
