"""Count the documents of a token store whose text repeats that of an earlier document."""

from __future__ import annotations

from seqpack_cli.reporting.text_hashes import TextHashes, cut_ranges
from seqpack_cli.tokens.store import TokenStore


def count_duplicates(store: TokenStore) -> dict[str, int]:
    """Count the documents that have tokens, and those that repeat an earlier one of them.

    Raises:
        FolderError: a part is damaged.
    """
    hashes = TextHashes(store)
    num_distinct = sum(
        len(hashes.find_distinct(first, end)) for first, end in cut_ranges(hashes.num_documents)
    )
    return {
        "num_documents_with_tokens": hashes.num_documents,
        "num_distinct_documents": num_distinct,
        "num_duplicate_documents": hashes.num_documents - num_distinct,
    }
