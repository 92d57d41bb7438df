"""The way back of a sequence: the token store of shards, and where a sequence came from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.token_store import TokenStore, open_store


def find_store_of(shards: ShardSet) -> TokenStore | None:
    """Open the token store of shards if it is still where it was; the way back needs it."""
    path = shards.find_store()
    try:
        store = open_store(path) if path is not None else None
    except FolderError:
        return None
    return store if store is not None and store.digest == shards.manifest["tokens_blake3"] else None


def describe_origin(store: TokenStore, index: int) -> dict[str, Any]:
    """Give the source, record, document and piece of a sequence, as plain values.

    Raises:
        FolderError: the store has no such sequence.
    """
    if not 0 <= index < len(store):  # of shards that say so
        raise FolderError(f"{store.path}: {len(store):,} sequences, none with index {index:,}")
    origin = asdict(store.locate(index))
    return {**origin, "source": spell_path(origin["source"])}


def spell_path(path: str) -> str:
    """Give a path as text; one that is no Unicode text can not be printed as it is."""
    return path.encode(errors="backslashreplace").decode()
