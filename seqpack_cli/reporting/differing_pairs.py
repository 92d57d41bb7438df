"""Compare which sequences two shard sets of pairs put together."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqpack_cli.shards.pairs import read_pairs
from seqpack_cli.shards.shard_set import ShardSet


def compare_pairing(first: ShardSet, second: ShardSet) -> dict[str, Any] | None:
    """Compare the partners of the encoder's sequences that both have.

    Returns:
        The number of sequences compared, of those with another partner, and the first of them with
        its partner in either. None if the stores of a side differ: their sequences have other
        numbers.

    Raises:
        FolderError: the rows of a batch are not matched one to one.
    """
    if _list_digests(first) != _list_digests(second):
        return None
    (indices, partners), (others, other_partners) = map(read_pairs, (first, second))
    shared, places, other_places = np.intersect1d(indices, others, return_indices=True)
    both = partners[places], other_partners[other_places]
    differing = np.flatnonzero(both[0] != both[1])
    earliest = None
    if len(differing):
        place = int(differing[0])
        earliest = {"sequence": int(shared[place]), "a": int(both[0][place])}
        earliest["b"] = int(both[1][place])
    return {"num_compared": len(shared), "num_differing": len(differing), "first": earliest}


def _list_digests(shards: ShardSet) -> list[list[str]]:
    return [[entry["blake3"] for entry in side.manifest["stores"]] for side in shards.sides]
