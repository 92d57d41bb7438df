"""Open a folder that holds a token store or shards, and find the sources of its sequences."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.files.json_files import read_json
from seqpack_cli.files.manifest import HEAD_BYTES, MANIFEST_NAME
from seqpack_cli.files.places import at
from seqpack_cli.files.url import AnyPath, Place, parse_place
from seqpack_cli.shards.packed_stores import open_packed_stores, show_packed_columns
from seqpack_cli.shards.shard_manifest import FORMAT as SHARDS_FORMAT
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.tokens.open_store import AnyStore, open_store
from seqpack_cli.tokens.token_store import TokenStore

Opened = TokenStore | ShardSet
FORMAT_FIELD = re.compile(rb'\s*\{\s*"format":\s*"([a-z.]+)"')  # the first field that we write


def open_any(path: AnyPath) -> Opened:
    """Open a token store or shards, whichever the folder holds.

    Raises:
        FolderError: it is neither, incomplete or damaged.
    """
    path = parse_place(path)
    return open_shards(path) if _has_shards(path / MANIFEST_NAME) else open_store(path)


def _has_shards(manifest: Place) -> bool:
    """Return whether a manifest is that of shards, most often from its first bytes."""
    if not at(manifest).exists():
        return False
    head = FORMAT_FIELD.match(at(manifest).read_head(HEAD_BYTES))
    found = head[1].decode() if head else read_json(manifest).get("format")
    return found == SHARDS_FORMAT


def name_kind(opened: Opened) -> str:
    """Return what was opened, in words."""
    return "shards" if isinstance(opened, ShardSet) else "a token store"


def find_store(opened: Opened) -> AnyStore | None:
    """Return the token store; of shards theirs, None if one is no longer there or has changed."""
    if not isinstance(opened, ShardSet):
        return opened
    try:
        return show_packed_columns(open_packed_stores(opened), opened)
    except SeqpackError:
        return None


def describe_origin(store: AnyStore | None, index: int) -> dict[str, Any] | None:
    """Return the source, record, document and piece of a sequence; None without its store.

    Raises:
        FolderError: the store has no such sequence.
    """
    if store is None:
        return None
    if not 0 <= index < len(store):  # damaged shards may name any index
        raise FolderError(
            f"{store.shown_path}: {len(store):,} sequences, none with index {index:,}"
        )
    origin = asdict(store.locate(index))
    return {**origin, **{name: spell_path(origin[name]) for name in ("store", "source")}}


def spell_path(path: str) -> str:
    """Return a path as printable text: bytes that are not UTF-8 are escaped."""
    return path.encode(errors="backslashreplace").decode()
