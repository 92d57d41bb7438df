"""Find and open the token stores that shards were packed from."""

from __future__ import annotations

from collections.abc import Sequence

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.files.url import Place
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.open_store import AnyStore, choose_columns, open_stores


def open_packed_stores(
    shards: ShardSet, places: Sequence[Place] | None = None, *, check_indices: bool = True
) -> AnyStore:
    """Open the stores of shards as one, with all columns that they share.

    Args:
        places: where the stores are, in any order; None looks where the manifest says.
        check_indices: check every index now.

    Raises:
        FolderError: a store is missing, damaged, or not one of those that were packed.
    """
    entries = shards.manifest["stores"]
    if places is None:
        places = shards.find_stores()
        if places is None:
            missing = entries[0]["path"][:200]
            raise FolderError(
                f"{shards.path}: its token store is not at {missing}",
                hint="pass --tokens STORE, or --level structure, which needs no store",
            )
    place_of = {_open_one(place).digest: place for place in places}
    digests = [entry["blake3"] for entry in entries]
    strange = next((place for digest, place in place_of.items() if digest not in digests), None)
    if strange is not None or len(place_of) < len(digests):
        what = f"{len(digests)} token stores, found {len(place_of)}"
        if strange is not None:
            what = "not the token store that these shards were packed from"
        raise FolderError(
            f"{strange}: {what}" if strange is not None else f"{shards.path}: expected {what}",
            hint="pass the right one with --tokens STORE, or pack again",
        )
    in_order = [place_of[digest] for digest in digests]
    return open_stores(in_order, check_indices=check_indices, without=shards.options.drop_column)


def show_packed_columns(store: AnyStore, options: PackOptions) -> AnyStore:
    """Return the stores of shards with the columns that the shards have."""
    return choose_columns(store, without=options.drop_column, store_column=options.store_column)


def _open_one(place: Place) -> AnyStore:
    return open_stores([place], check_indices=False)
