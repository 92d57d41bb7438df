"""Find and open the token stores that shards were packed from."""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.files.json_files import MAX_JSON_BYTES
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import Place, at
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore, choose_columns, open_stores


def share_places(shards: ShardSet, places: Sequence[Place]) -> list[list[Place]]:
    """Return for each side of shards which of some stores are its own; a store may be of both.

    Raises:
        FolderError: one is not a token store, or not one of those that were packed.
    """
    digests = [{entry["blake3"] for entry in side.manifest["stores"]} for side in shards.sides]
    shared: list[list[Place]] = [[] for _ in digests]
    for place in places:
        digest = _read_digest(place)
        if not any(digest in known for known in digests):
            raise _refuse(f"{place}: {_say_other(sum(map(len, digests)))}")
        for known, own in zip(digests, shared, strict=True):
            own += [place] if digest in known else []
    return shared


def open_packed_stores(
    shards: ShardSet, places: Sequence[Place] = (), *, check_indices: bool = True
) -> TokenStore:
    """Open the stores of shards as one, with all columns that they share; of pairs, of one side.

    Args:
        places: where some or all of them are, in any order; the others are looked for where the
            manifest says.
        check_indices: check every index now.

    Raises:
        FolderError: a store is missing, damaged, or not one of those that were packed.
    """
    entries = shards.manifest["stores"]
    wanted = {entry["blake3"]: number for number, entry in enumerate(entries)}
    found: dict[int, Place] = {}
    for place in places:
        number = wanted.get(_read_digest(place))
        if number is None:
            raise _refuse(f"{place}: {_say_other(len(entries))}")
        found[number] = place
    for number, recorded in enumerate(shards.find_stores()):
        if number not in found:
            found[number] = _check_found(shards, number, recorded)
    in_order = [found[number] for number in range(len(entries))]
    return open_stores(
        in_order, check_indices=check_indices, without=shards.own_options.drop_column
    )


def are_stores_there(shards: ShardSet) -> bool:
    """Return whether the manifest of each store is still where that of the shards says.

    The stores may be damaged all the same.
    """
    places, entries = shards.find_stores(), shards.manifest["stores"]
    return all(
        place is not None and _hash_manifest(place) == entry["blake3"]
        for place, entry in zip(places, entries, strict=True)
    )


def show_packed_columns(store: TokenStore, shards: ShardSet) -> TokenStore:
    """Return the stores of shards with the columns that the shards have."""
    options = shards.own_options
    return choose_columns(
        store,
        without=options.drop_column,
        store_column=options.store_column,
        names=shards.store_names,
    )


def _check_found(shards: ShardSet, number: int, place: Place | None) -> Place:
    """Return where a store is, if it is there and the same."""
    entries = shards.manifest["stores"]
    num_stores, entry = len(entries), entries[number]
    if place is None:
        whose = "its" if shards.side is None else f"the {shards.side}'s"
        which = f"{whose} token store"
        if num_stores > 1:
            which = f"token store {number + 1} of {num_stores}"
            which += "" if shards.side is None else f" of the {shards.side}"
        raise FolderError(
            f"{shards.path}: {which} is not at {entry['path'][:200]}",
            hint="pass --tokens STORE, or --level structure, which needs no store",
        )
    if _read_digest(place) != entry["blake3"]:
        which = _say_other(1)
        if num_stores > 1:
            which = f"not token store {number + 1} of the {num_stores} that these shards were "
            which += "packed from"
        raise _refuse(f"{place}: {which}")
    return place


def _say_other(num_stores: int) -> str:
    stores = "the token store" if num_stores == 1 else f"one of the {num_stores} token stores"
    return f"not {stores} that these shards were packed from"


def _refuse(what: str) -> FolderError:
    return FolderError(what, hint="pass the right one with --tokens STORE, or pack again")


def _read_digest(place: Place) -> str:
    return open_stores([place], check_indices=False).digest


def _hash_manifest(place: Place) -> str | None:
    """Return the digest of a store's manifest, whatever it holds; None if it cannot be read."""
    try:
        return blake3(at(place / MANIFEST_NAME).read(max_bytes=MAX_JSON_BYTES)).hexdigest()
    except SeqpackError:
        return None
