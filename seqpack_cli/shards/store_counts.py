"""Count the sequences and tokens that a shard holds of each store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
