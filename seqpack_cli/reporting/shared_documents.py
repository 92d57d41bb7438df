"""Find the documents that two token stores, or two shard sets, both contain.

Documents are the same if the hashes of their texts are, so a test set that was packed from other
stores is compared too. The hashes of imported documents are of their ids, and not comparable. Of
shards, a document counts if one of its sequences is in them. 40 million documents a side take 10 s
if all differ and 0.6 GB, of which only a byte per sequence can grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqpack_cli.reporting.opened import Opened, describe_origin, find_store
from seqpack_cli.reporting.text_hashes import TextHashes, cut_ranges
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpack import read_original_indices
from seqpack_cli.tokens.store import TokenStore

MAX_EXAMPLES = 3
SIDES = ("a", "b")
ORIGIN_FIELDS = ("store", "source", "record", "document")


def find_shared(first: Opened, second: Opened) -> dict[str, Any]:
    """Count the documents that both sides contain, and locate a few on both.

    Returns:
        The number of documents of each side, of those that the other has too, and of different
        texts among them; `examples`; the sides whose token stores were not found or have changed,
        and whether some of them were imported and others not: then the rest is None.

    Raises:
        FolderError: a shard or a part is damaged.
    """
    read = [_read_hashes(opened) for opened in (first, second)]
    found: dict[str, Any] = {
        "without_stores": [side for side, each in zip(SIDES, read, strict=True) if each is None]
    }
    sides = [each for each in read if each is not None]
    makers = {store.manifest["made_by"] for side in sides for store in side.store.folders}
    found["has_other_hashes"] = len(makers) > 1
    num_shared, num_shared_texts = [0, 0], 0
    examples = np.empty(0, np.uint64)
    if is_known := len(sides) == len(SIDES) and not found["has_other_hashes"]:
        num_most = max(side.num_documents for side in sides)
        for start, end in cut_ranges(num_most):
            distinct = [side.find_distinct(start, end) for side in sides]
            shared = distinct[0][_is_among(distinct[0], distinct[1])]
            del distinct
            num_shared_texts += len(shared)
            examples = np.concatenate([examples, shared])[:MAX_EXAMPLES]
            for place, side in enumerate(sides):
                num_shared[place] += _count_shared(side.iter_range(start, end), shared)
    for place, name in enumerate(SIDES):
        found[f"num_in_{name}"] = sides[place].num_documents if is_known else None
        found[f"num_shared_in_{name}"] = num_shared[place] if is_known else None
    found["num_shared_texts"] = num_shared_texts if is_known else None
    found["examples"] = _locate(sides, examples) if is_known else None
    return found


def compare_hashes(first: TokenStore, second: TokenStore) -> dict[str, Any]:
    """Compare the hash of document i of two stores, for all i that both have.

    If only one was imported, its hashes are of something else, and the numbers are None.
    """
    if first.manifest["made_by"] != second.manifest["made_by"]:
        return {"num_differing": None, "first_differing": None}
    num_compared = num_differing = 0
    earliest: int | None = None
    for hashes, others in _iter_alike(first, second):
        differing = np.flatnonzero(hashes != others)
        if len(differing) and earliest is None:
            earliest = num_compared + int(differing[0])
        num_differing += len(differing)
        num_compared += len(hashes)
    return {"num_differing": num_differing, "first_differing": earliest}


def _read_hashes(opened: Opened) -> TextHashes | None:
    """Return the hashes of what was opened; None for shards whose stores are not there."""
    store = find_store(opened)
    if store is None or not isinstance(opened, ShardSet):
        return None if store is None else TextHashes(store)
    is_packed = np.zeros(len(store), bool)
    for number in range(opened.num_shards):
        indices = read_original_indices(opened.open_shard(number), len(store))
        is_packed[indices[indices >= 0]] = True
    return TextHashes(store, is_packed)


def _is_among(hashes: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Return which hashes are among sorted ones, bool[N]; fast if they are sorted too."""
    if not len(shared):
        return np.zeros(len(hashes), bool)
    places = np.minimum(np.searchsorted(shared, hashes), len(shared) - 1)
    is_among: np.ndarray = shared[places] == hashes
    return is_among


def _count_shared(parts: Iterator[np.ndarray], shared: np.ndarray) -> int:
    if not len(shared):
        return 0
    return sum(int(np.count_nonzero(_is_among(np.sort(hashes), shared))) for hashes in parts)


def _locate(sides: list[TextHashes], hashes: np.ndarray) -> list[dict[str, Any]]:
    """Return where documents are on both sides, in the order of the first."""
    if not len(hashes):
        return []
    pairs = sorted(zip(*(side.find_sequences(hashes) for side in sides), strict=True))
    described = []
    for pair in pairs:
        example = {}
        for name, side, index in zip(SIDES, sides, pair, strict=True):
            origin = describe_origin(side.store, index) or {}
            example[name] = {field: origin[field] for field in ORIGIN_FIELDS}
        described.append(example)
    return described


def _iter_alike(first: TokenStore, second: TokenStore) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the hashes of the same documents of two stores, whose parts may end elsewhere."""
    nothing = np.empty(0, np.uint64)
    parts = [map(store.part_hashes, store.fetch_columns()) for store in (first, second)]
    rest = [nothing, nothing]
    while True:
        for place, hashes in enumerate(rest):
            while not len(hashes):
                following = next(parts[place], None)
                if following is None:
                    return
                hashes = following
            rest[place] = hashes
        num_alike = min(map(len, rest))
        yield rest[0][:num_alike], rest[1][:num_alike]
        rest = [hashes[num_alike:] for hashes in rest]
        first.let_pages_go()
        second.let_pages_go()
