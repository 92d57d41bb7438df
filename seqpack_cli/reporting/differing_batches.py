"""Compare two shard sets: whether their arrays are equal, and which batches have the same rows.

Arrays are compared at the speed of memory; rows by a digest of each batch, 2 us and 50 bytes of
memory per batch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.ranges import is_equal
from seqpack_cli.reporting.opened import name_entry
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet

# What identifies a row; of sequences that share rows also the piece and its row of the batch.
ROW_NAMES = ("original_indices", "piece_starts", "lengths", "row_indices")


def have_equal_arrays(first: ShardSet, second: ShardSet, progress: Progress) -> bool:
    """Return whether all arrays of all shards are equal, and mean the same rows.

    Raises:
        FolderError: a shard is missing, or its arrays do not belong together.
    """
    if _describe_kind(first) != _describe_kind(second):
        return False
    progress.on_total(sum(entry["num_rows"] for entry in first.manifest["shards"]))
    for number in range(first.num_shards):
        tensors, others = first.open_shard(number).tensors, second.open_shard(number).tensors
        are_equal = tensors.keys() == others.keys() and all(
            is_equal(array, others[name]) for name, array in tensors.items()
        )
        let_pages_go(tensors["data"])
        let_pages_go(others["data"])
        if not are_equal:
            return False
        progress.on_advance(len(tensors["lengths"]))
    return True


def compare_batches(first: ShardSet, second: ShardSet) -> dict[str, Any]:
    """Compare the rows of batch i with those of batch i of other shards of the same layout.

    Two batches are the same if they have the same sequences in the same order; where sequences
    share rows, the same pieces of them, in the same rows.

    Returns:
        The number of batches of either, of equal batches at the same index and at any index, and
        the first batch that differs; `entry` is what a batch lists, a row or a sequence.
    """
    digests, others = _hash_batches(first), _hash_batches(second)
    is_same = [digest == other for digest, other in zip(digests, others, strict=False)]
    num_compared = len(is_same)
    place = is_same.index(False) if False in is_same else num_compared
    earliest = None
    if place < max(len(digests), len(others)):
        earliest = _describe_batch(place, first, second)
    return {
        "entry": name_entry(first),
        "num_a": len(digests),
        "num_b": len(others),
        "num_same": sum(is_same),
        "num_same_anywhere": (Counter(digests) & Counter(others)).total(),
        "first": earliest,
    }


def _describe_kind(shards: ShardSet) -> tuple[str, str, int | None, int, int]:
    # The padding side, and the shape of shared rows, decide which cells hold which ids.
    geometry = Geometry.of_manifest(shards.manifest)
    shape = geometry.num_rows, geometry.row_length
    return shards.layout, geometry.padding_side, *shape, shards.num_shards


def _hash_batches(shards: ShardSet) -> list[bytes]:
    digests = []
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        rows, offsets = _read_rows(shard), shard.tensors["sequence_offsets"].tolist()
        for start, end in pairwise(offsets):
            digests.append(hashlib.blake2b(rows[start:end].data, digest_size=16).digest())
    return digests


def _read_rows(shard: Shard) -> np.ndarray:
    """Return what identifies each row: the index, or index, start, length and row of a piece."""
    tensors = shard.tensors
    names = ROW_NAMES if "piece_starts" in tensors else ROW_NAMES[:1]
    only_row = np.zeros_like(tensors["lengths"])  # of batches of one row
    return np.stack([tensors.get(name, only_row) for name in names], axis=1)


def _describe_batch(index: int, first: ShardSet, second: ShardSet) -> dict[str, Any]:
    """Return the rows of batch `index` on both sides, None for a side without such a batch."""
    found = [_read_batch(index, shards) for shards in (first, second)]
    rows = [np.empty((0, 1), np.int64) if batch is None else batch for batch in found]
    num_common = min(map(len, rows))
    differs = (rows[0][:num_common] != rows[1][:num_common]).any(axis=1)
    return {
        "batch": index,
        "row": int(differs.argmax()) if differs.any() else num_common,
        "a": _list_rows(found[0]),
        "b": _list_rows(found[1]),
    }


def _read_batch(index: int, shards: ShardSet) -> np.ndarray | None:
    if index >= len(shards):
        return None
    number, inside = shards.find(index)
    shard = shards.open_shard(number)
    start, end = shard.tensors["sequence_offsets"][inside : inside + 2].tolist()
    return _read_rows(shard)[start:end]


def _list_rows(rows: np.ndarray | None) -> dict[str, list[int]] | None:
    if rows is None:
        return None
    return {name: column.tolist() for name, column in zip(ROW_NAMES, rows.T, strict=False)}
