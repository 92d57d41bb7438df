"""Open what `inspect` shows, a token store, shards or splits, and find sources of sequences."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any, TypeVar

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import FolderError, OptionError, SeqpackError
from seqpack_cli.files.manifest import FORMAT_OF_SPLITS, find_format
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import parse_place
from seqpack_cli.reporting.wording import count
from seqpack_cli.shards.pairs import view_side
from seqpack_cli.shards.shard_set import (
    ShardSet,
    open_any,
    open_packed_stores,
    show_packed_columns,
)
from seqpack_cli.shards.split_set import SplitSet, open_splits
from seqpack_cli.tokens.store import (
    AnyPaths,
    TokenStore,
    name_stores,
    open_stores,
    parse_places,
)

Opened = TokenStore | ShardSet
AnyOpened = TokenStore | ShardSet  # with several stores as one
AnyKind = TypeVar("AnyKind", bound=AnyOpened | SplitSet)


def open_any_as_one(paths: AnyPaths) -> AnyOpened:
    """Open shards, a token store, or several token stores as one.

    Raises:
        FolderError: one is something else, incomplete or damaged.
        OptionError: several stores differ in tokenizer or columns, or one is named twice.
    """
    places = parse_places(paths)
    return open_any(places[0]) if len(places) == 1 else open_stores(places, wanted=())


def open_any_or_splits(path: AnyPath) -> Opened | SplitSet:
    """Open a token store, shards, or the splits that `pack --split` wrote."""
    place = parse_place(path)
    return open_splits(place) if find_format(place) == FORMAT_OF_SPLITS else open_any(place)


def check_one(opened: Opened | SplitSet, option: str) -> Opened:
    """Return what was opened; raise OptionError if it is all splits, which an option cannot show.

    Args:
        option: as it was typed.
    """
    if not isinstance(opened, SplitSet):
        return opened
    first = opened.path / next(iter(opened.splits))
    raise OptionError(
        f"{option}: {opened.path} holds {count(len(opened.splits), 'split')}, expected one",
        hint=f"seqpack inspect {shlex.quote(str(first))} {option}",
    )


def choose_side(opened: AnyKind, side: str | None) -> AnyKind | ShardSet:
    """Return one side of shards of pairs; None for what was opened, with both sides.

    Raises:
        OptionError: it is not one shard set of pairs.
    """
    if side is None:
        return opened
    one = check_one(opened, f"--side {side}") if isinstance(opened, SplitSet) else opened
    if not isinstance(one, ShardSet):
        raise OptionError(
            f"--side {side}: {show_path(one)} is a token store, expected shards of pairs",
            hint="leave out --side",
        )
    return view_side(one, side)


def name_kind(opened: Opened) -> str:
    """Return what was opened, in words."""
    return "shards" if isinstance(opened, ShardSet) else "a token store"


def name_entry(opened: Opened) -> str:
    """Return what has a length and values of columns: a sequence, or a row that is one."""
    has_rows = isinstance(opened, ShardSet) and not LAYOUTS[opened.layout].shares_rows
    return "row" if has_rows else "sequence"


def show_path(opened: AnyOpened) -> str:
    """Return the folder, or those of several stores, as messages name them."""
    return str(opened.path) if isinstance(opened, ShardSet) else opened.shown_path


def find_store(opened: AnyOpened, *, check_indices: bool = True) -> TokenStore | None:
    """Return the token store; of shards theirs, None if one is missing, changed or damaged.

    Args:
        check_indices: check every index of the stores of shards now.
    """
    if not isinstance(opened, ShardSet):
        return opened
    try:
        store = open_packed_stores(opened, check_indices=check_indices)
        return show_packed_columns(store, opened)
    except SeqpackError:
        return None


def describe_origin(store: TokenStore | None, index: int) -> dict[str, Any] | None:
    """Return the source, record, document and piece of a sequence; None without its store.

    Of several stores, `store_name` is the name that `--passes` has for its store.

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
    found = {**origin, **{name: spell_path(origin[name]) for name in ("store", "source")}}
    if len(store.folders) > 1:
        paths = [str(each.path) for each in store.folders]
        found["store_name"] = list_store_names(store)[paths.index(origin["store"])]
    return found


def list_store_names(store: TokenStore) -> list[str]:
    """Return the names of several stores as printable text; none if there is only one."""
    names = name_stores([each.path for each in store.folders])
    return list(map(spell_path, names)) if len(names) > 1 else []


def spell_source(source: str, store_name: str | None) -> str:
    """Return the source of a sequence, after the name of its store if there are several."""
    return source if store_name is None else f"{store_name}: {source}"


def spell_path(path: str) -> str:
    """Return a path as printable text: bytes that are not UTF-8 are escaped."""
    return path.encode(errors="backslashreplace").decode()
