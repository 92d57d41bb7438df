"""Open a token store, or several as one."""

from __future__ import annotations

import copy
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import overload

from seqpack_cli.errors import FolderError, OptionError, join_items, quote
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.places import AnyPath, Place, parse_place
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.tokens.columns.combined_columns import (
    combine_columns,
    find_constants,
    make_store_column,
)
from seqpack_cli.tokens.columns.part_columns import ShownColumns
from seqpack_cli.tokens.combined_store import CombinedStore
from seqpack_cli.tokens.store_manifest import check_totals, read_store_manifest
from seqpack_cli.tokens.token_store import TokenStore

MAX_STORES = 4096  # their digests are in the header of each shard, which readers limit to 1 MiB
TWIN = "name it once; to visit its sequences twice, pass --passes to pack"
TWIN_OF_DECODER = "for two sides of one text, tokenize a copy of its file with another name"
AnyStore = TokenStore | CombinedStore
AnyPaths = AnyPath | Sequence[AnyPath]  # of one store, or of several


@overload
def open_store(
    path: AnyPath, *, check_indices: bool = True, columns: Sequence[str] | None = None
) -> TokenStore: ...


@overload
def open_store(
    path: Sequence[AnyPath], *, check_indices: bool = True, columns: Sequence[str] | None = None
) -> AnyStore: ...


@checks_arguments
def open_store(
    path: AnyPaths, *, check_indices: bool = True, columns: Sequence[str] | None = None
) -> AnyStore:
    """Open a finished token store, or several as one; ids are read when they are asked for.

    Args:
        path: the store's folder. Several are a `CombinedStore`: sequences are numbered over all, in
            the order given, and the classes of a column are those of all stores.
        check_indices: check every index now, not each when it is first used.
        columns: names of the columns to read; None is all, and then all stores must have the same.

    Raises:
        FolderError: one is incomplete, damaged, or not a token store.
        OptionError: several differ in tokenizer or columns, or one is named twice.
        ValueError: a store has no such column.
    """
    store = open_stores(parse_places(path), check_indices=check_indices, wanted=columns)
    if columns is None:
        return store
    for name in columns:
        if name not in store.columns:
            found = join_items(map(quote, store.columns)) or "no columns"
            raise ValueError(f"no column {quote(name)} (found: {found})")
    return choose_columns(store, without=set(store.columns).difference(columns))


def parse_places(paths: AnyPaths) -> list[Place]:
    """Return the places of one store, or of several."""
    if isinstance(paths, Sequence) and not isinstance(paths, str):
        return [parse_place(path) for path in paths]
    return [parse_place(paths)]


def open_stores(
    places: Sequence[Place],
    *,
    check_indices: bool = True,
    without: Collection[str] = (),
    wanted: Collection[str] | None = None,
    prefix: str = "",
) -> AnyStore:
    """Open stores as one.

    Args:
        check_indices: check every index now.
        without: names of columns to leave out if the stores differ in them.
        wanted: names of columns, of which all others are left out if the stores differ in them.
        prefix: what options have before the names of these stores' columns.
    """
    if not places:
        raise ValueError("no store, expected at least one")
    if len(places) > MAX_STORES:
        raise OptionError(
            f"{len(places):,} stores, expected at most {MAX_STORES:,}",
            hint="tokenize more files into each store",
        )
    stores = [_open(place, check_indices=check_indices) for place in places]
    check_dropped(stores, without, prefix=prefix)
    if len(stores) == 1:
        return stores[0]
    _check_stores(stores, TWIN_OF_DECODER if prefix else TWIN)
    if wanted is not None:
        known = {name for store in stores for name in store.columns}
        without = {*without, *known.difference(wanted)}
    named = [(str(it.path), it.columns) for it in stores]
    columns = combine_columns(named, without=without, prefix=prefix)
    return CombinedStore(
        [
            _show(store, ShownColumns(columns, find_constants(columns, store.columns)))
            for store in stores
        ]
    )


def check_dropped(
    stores: Iterable[TokenStore], names: Collection[str], *, prefix: str = ""
) -> None:
    """Raise OptionError if no store has a column that is to be left out."""
    known = {column["name"] for store in stores for column in store.manifest["columns"]}
    for name in names:
        if name not in known:
            found = join_items(quote(f"{prefix}{it}") for it in sorted(known)) or "none"
            wrong = quote(f"{prefix}{name}")
            raise OptionError(
                f"--drop-column {wrong}: no store has this column (found: {found})",
                hint="leave out --drop-column, or pass the name of a column",
            )


def choose_columns(
    store: AnyStore,
    *,
    without: Collection[str] = (),
    store_column: str | None = None,
    names: Sequence[str] | None = None,
) -> AnyStore:
    """Return a store with other columns.

    Args:
        without: names of columns to leave out.
        store_column: name of a column to add, whose class is the store of each sequence.
        names: the classes of that column; None names the stores by their folders.

    Raises:
        OptionError: there is already a column of that name.
    """
    if store_column is None and not without:
        return store
    columns = {name: column for name, column in store.columns.items() if name not in without}
    constants = [dict(each.stored_columns.constants) for each in store.stores]
    if store_column is not None:
        names = names or name_stores([each.path for each in store.stores])
        columns[store_column] = make_store_column(columns, store_column, names)
        for number, values in enumerate(constants):
            values[store_column] = number
    both = zip(store.stores, constants, strict=True)
    stores = [_show(each, ShownColumns(columns, values)) for each, values in both]
    return stores[0] if len(stores) == 1 else CombinedStore(stores)


def name_stores(places: Sequence[Place]) -> list[str]:
    """Name stores by their folders; where names repeat, by their positions, from 1."""
    return number_repeated([place.resolve().name for place in places])


def number_repeated(names: Sequence[str]) -> list[str]:
    """Replace names that are empty or not unique by their positions, from 1.

    A name that is then the position of another store is replaced as well.

    >>> number_repeated(["2", "a", "a", "b"])
    ['1', '2', '3', 'b']
    """
    found, number_of = list(names), Counter(names)
    while number_of[""] or max(number_of.values(), default=0) > 1:
        found = [
            name if name and number_of[name] == 1 else str(position)
            for position, name in enumerate(found, 1)
        ]
        number_of = Counter(found)
    return found


def _show(store: TokenStore, shown: ShownColumns) -> TokenStore:
    """Return the same store, read with other columns: some of them, or with more classes."""
    other = copy.copy(store)
    other.stored_columns = store.stored_columns.show(shown)
    return other


def _open(path: Place, *, check_indices: bool) -> TokenStore:
    manifest, digest = read_store_manifest(path)
    store = TokenStore(path, manifest, digest)
    if check_indices:
        store.check_indices()
    check_totals(manifest, path / MANIFEST_NAME)
    return store


def _check_stores(stores: Sequence[TokenStore], twin_hint: str) -> None:
    """Refuse stores of different tokenizers, and a store that is named twice.

    Without a tokenizer, stores must have the same number of ids.
    """
    seen: dict[str, TokenStore] = {}
    first = stores[0]
    for store in stores:
        twin = seen.setdefault(store.digest, store)
        if twin is not store:
            raise OptionError(
                f"{store.path}: has the same content as {twin.path}",
                hint=twin_hint,
            )
        _check_tokenizers(store, first)
        for name in ("dtype", "vocab_size", "max_id"):
            found, expected = store.manifest[name], first.manifest[name]
            if found != expected:
                raise FolderError(f"{store.path}: {name} {found}, {first.path} has {expected}")


def _check_tokenizers(store: TokenStore, first: TokenStore) -> None:
    """Raise OptionError unless the ids of two stores may mean the same tokens."""
    found, expected = (each.manifest["tokenizer_blake3"] for each in (store, first))
    if found is None and expected is None:
        found, expected = (each.manifest["vocab_size"] for each in (store, first))
        if found != expected:
            raise OptionError(
                f"{store.path}: vocab_size {found}, {first.path} has {expected}",
                hint="import both with the same --vocab-size",
            )
    elif found is None or expected is None:
        without, other = (store, first) if found is None else (first, store)
        raise OptionError(
            f"{without.path}: no tokenizer, {other.path} has one",
            hint=f"import {shlex.quote(str(without.path))} again with --tokenizer "
            f"{shlex.quote(str(other.path / 'tokenizer.json'))}",
        )
    elif found != expected:
        raise OptionError(
            f"{store.path}: tokenizer {found}, {first.path} has {expected}",
            hint="tokenize all stores with the same tokenizer",
        )
