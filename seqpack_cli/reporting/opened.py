"""A token store or shards, whichever a folder holds, and the way back of its sequences."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import read_json
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import AnyPath, parse_place
from seqpack_cli.shards.shard_manifest import FORMAT as SHARDS_FORMAT
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.tokens.token_store import TokenStore, open_store

Opened = TokenStore | ShardSet


def open_any(path: AnyPath) -> Opened:
    """Open a token store or shards, whichever the manifest says.

    Raises:
        FolderError: it is neither, incomplete or damaged.
    """
    path = parse_place(path)
    manifest = path / MANIFEST_NAME
    if at(manifest).exists() and read_json(manifest).get("format") == SHARDS_FORMAT:
        return open_shards(path)
    return open_store(path)


def name_kind(opened: Opened) -> str:
    """Say which of both was opened."""
    return "shards" if isinstance(opened, ShardSet) else "a token store"


def find_store(opened: Opened) -> TokenStore | None:
    """Return the token store, of shards theirs if it still is where it was."""
    if isinstance(opened, TokenStore):
        return opened
    path = opened.find_store()
    try:
        store = open_store(path) if path is not None else None
    except FolderError:
        return None
    return store if store is not None and store.digest == opened.manifest["tokens_blake3"] else None


def describe_origin(store: TokenStore | None, index: int) -> dict[str, Any] | None:
    """Return the source, record, document and piece of a sequence; None without its store.

    Raises:
        FolderError: the store has no such sequence.
    """
    if store is None:
        return None
    if not 0 <= index < len(store):  # of shards that say so
        raise FolderError(f"{store.path}: {len(store):,} sequences, none with index {index:,}")
    origin = asdict(store.locate(index))
    return {**origin, "source": spell_path(origin["source"])}


def spell_path(path: str) -> str:
    """Return a path as text; one that is not Unicode text cannot be printed as it is."""
    return path.encode(errors="backslashreplace").decode()
