"""Count the sequences and tokens that a shard holds of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import check_fields
from seqpack_cli.files.places import Place
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Tensors

STORE_COUNTS: dict[str, type] = {"num_sequences": int, "num_tokens": int}


def count_of_stores(num_sequences: Sequence[int], tensors: Tensors) -> list[dict[str, int]]:
    """Count what the rows of a shard hold of each store; a split sequence is counted once.

    Args:
        num_sequences: of each store.
    """
    indices, lengths = tensors["original_indices"], tensors["lengths"]
    numbers = np.searchsorted(to_offsets(num_sequences), indices, "right") - 1
    is_first = indices >= 0
    if "piece_starts" in tensors:
        is_first &= tensors["piece_starts"] == 0
    num_stores = len(num_sequences)
    sequences = np.bincount(numbers[is_first], minlength=num_stores)
    real = indices >= 0
    tokens = np.bincount(numbers[real], lengths[real], minlength=num_stores)
    return [
        {"num_sequences": int(found), "num_tokens": int(count)}
        for found, count in zip(sequences.tolist(), tokens.tolist(), strict=True)
    ]


def add_up_stores(counts: Sequence[list[dict[str, int]]]) -> list[dict[str, int]]:
    """Add up the counts of all shards, store by store."""
    return [
        {name: sum(entry[name] for entry in entries) for name in STORE_COUNTS}
        for entries in zip(*counts, strict=True)
    ]


def check_counts(counts: list[Any], num_stores: int, source: Place) -> None:
    """Raise FolderError unless a list has the counts of each store."""
    if len(counts) != num_stores:
        raise FolderError(f"{source}: counts of {len(counts):,} stores, expected {num_stores:,}")
    for entry in counts:
        check_fields(entry, STORE_COUNTS, source=source)


def counts_add_up(entry: Mapping[str, Any], num_stores: int, source: Place) -> bool:
    """Return whether the counts of each store add up to those of the whole shard."""
    try:
        check_counts(entry["stores"], num_stores, source)
    except FolderError:
        return False
    return all(sum(it[name] for it in entry["stores"]) == entry[name] for name in STORE_COUNTS)
