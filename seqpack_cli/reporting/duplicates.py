"""Count the documents of a token store whose text repeats that of an earlier document.

Documents with the same hash count as equal: among a thousand million different ones, some pair has
the same hash with a probability of 3 %. Memory is bounded: the mapped hashes are read once for each
range of their values, and only those of one range are sorted at a time.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seqpack_cli.tokens.token_store import TokenStore

MAX_HASHES = 1 << 24  # of a range, 8 bytes each; while they are read there may be twice as many


def count_duplicates(store: TokenStore, *, max_hashes: int = MAX_HASHES) -> dict[str, int]:
    """Count the documents that have tokens, and those that repeat an earlier one of them.

    Args:
        max_hashes: about so many are sorted at a time.

    Raises:
        FolderError: a part is damaged.
    """
    num_ranges = max(1, -(-store.num_documents // max_hashes))
    bounds = [(number << 64) // num_ranges for number in range(num_ranges + 1)]
    num_documents = num_distinct = 0
    for first, end in pairwise(bounds):
        kept, num_kept = [np.empty(0, np.uint64)], 0
        for number, part in enumerate(store.iter_columns()):
            hashes = part.hashes
            is_inside = (hashes >= np.uint64(first)) & (hashes <= np.uint64(end - 1))
            kept.append(hashes[is_inside & (store.count_sequences(number) > 0)])
            num_documents += len(kept[-1])
            num_kept += len(kept[-1])
            if num_kept > 2 * max_hashes:  # many of them must be equal
                kept = [_find_distinct(kept)]
                num_kept = len(kept[0])
            store.let_pages_go()
        num_distinct += len(_find_distinct(kept))
    return {
        "num_documents_with_tokens": num_documents,
        "num_distinct_documents": num_distinct,
        "num_duplicate_documents": num_documents - num_distinct,
    }


def _find_distinct(pieces: list[np.ndarray]) -> np.ndarray:
    """Return each of the hashes once; the list is emptied, because its copy is as large."""
    hashes = np.concatenate(pieces)
    pieces.clear()
    hashes.sort()
    is_first = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
    return hashes[is_first]
