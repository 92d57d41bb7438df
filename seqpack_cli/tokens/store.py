"""A token store of one folder or several: every sequence by its index, and what stands beside it.

Parts, documents and sequences are numbered over all folders, in the order given, so appending to a
corpus is to tokenize the new files into a folder of their own and to name it last. `store[i]` is a
view of a file, mapped when it is first read; `lengths` keeps 4 bytes per sequence. `copy_rows` and
`read_values` read many sequences at once, in the order of the disk.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, cast, overload

import numpy as np
from blake3 import blake3

from seqpack_cli.errors import FolderError, OptionError, join_items, quote
from seqpack_cli.files.manifest import MANIFEST_NAME, OpenedFolder, read_kept_tokenizer
from seqpack_cli.files.mapping import keep_mapped, let_pages_go, map_regular
from seqpack_cli.files.objects import AnyPath, map_ahead
from seqpack_cli.files.places import Place, at, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import copy_ranges, find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.tokens.columns import (
    VALUES_OF_MISSING,
    Column,
    combine_columns,
    make_store_column,
    read_columns,
)
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.manifest import read_store_manifest
from seqpack_cli.tokens.part_files import DAMAGED_HINT, Index, PartColumns, map_index
from seqpack_cli.tokens.text_values import TextValues

MAX_STORES = 4096  # their digests are in the header of each shard, which readers limit to 1 MiB
TWIN = "name it once; to visit its sequences twice, pass --passes to pack"
TWIN_OF_DECODER = "for two sides of one text, tokenize a copy of its file with another name"
SHARED = ("dtype", "vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id")
SILENT = ("num_empty_documents", "num_rejected", "num_dropped_documents")  # without a sequence
AnyPaths = AnyPath | Sequence[AnyPath]  # of one folder, or of several


@dataclass(frozen=True)
class Origin:
    """Where a sequence came from."""

    store: str  # path of the token store
    source: str  # path of the input file
    record: int  # in that file, from 1: the line number in a line file
    document: int  # in that store, from 0
    piece: int  # of the document, from 0
    num_pieces: int


class StoreFolder:
    """One folder of a store, and where what it holds begins in the whole store.

    Its documents include those without a sequence, of which there are `num_silent`.

    Args:
        digest: the BLAKE3 of its manifest.
        manifest: as it was read and checked.
        before: the folder before it.
    """

    def __init__(
        self,
        path: Place,
        digest: str,
        manifest: dict[str, Any],
        before: StoreFolder | None = None,
    ) -> None:
        self.opened = OpenedFolder(path, digest)
        self.digest, self.manifest = digest, manifest
        self.columns = read_columns(manifest, path / MANIFEST_NAME)  # that its files hold
        ledger: dict[str, int] = manifest["ledger"]
        self.num_documents = ledger["num_documents"]
        self.num_sequences, self.num_tokens = ledger["num_sequences"], ledger["num_tokens"]
        self.num_silent = sum(ledger[name] for name in SILENT)
        self.number = self.first_document = self.first_sequence = first_part = 0
        if before is not None:
            self.number, first_part = before.number + 1, before.parts.stop
            self.first_document = before.first_document + before.num_documents
            self.first_sequence = before.first_sequence + before.num_sequences
        self.parts: range = range(first_part, first_part + len(manifest["parts"]))

    @property
    def path(self) -> Place:
        """The folder."""
        return self.opened.path


class TokenStore:
    """The sequences of token stores; `store[i]` is the ids of one, read-only, a slice a list.

    Its manifest is that of the folder; of several, it has the fields that they share.
    """

    def __init__(self, folders: Sequence[StoreFolder]) -> None:
        self.folders = tuple(folders)
        first = folders[0]
        self.columns: Mapping[str, Column] = first.columns
        self.constants: Sequence[Mapping[str, int]] = [{}] * len(folders)  # by folder and column
        self._store_column = ""  # the column whose class is the folder of each sequence
        if len(folders) == 1:
            self.manifest, self.digest = first.manifest, first.digest
        else:
            names = (*SHARED, "tokenizer_blake3")
            self.manifest = {name: first.manifest[name] for name in names}
            self.digest = blake3(" ".join(it.digest for it in folders).encode()).hexdigest()
        self.dtype: str = self.manifest["dtype"]
        self.max_id: int = self.manifest["max_id"]
        self.parts: list[dict[str, Any]] = [part for it in folders for part in it.manifest["parts"]]
        self._folder_of = [folder for folder in folders for _ in folder.parts]
        self.part_offsets = to_offsets([part["num_sequences"] for part in self.parts])
        self._document_offsets = to_offsets([part["num_documents"] for part in self.parts])
        self._opened: dict[int, tuple[np.ndarray, Index]] = {}
        self._opened_columns: dict[int, PartColumns] = {}

    def __len__(self) -> int:
        return int(self.part_offsets[-1])

    def __repr__(self) -> str:
        paths = [str(folder.path) for folder in self.folders]
        shown = paths[0] if len(paths) == 1 else paths
        counts = f"num_sequences={len(self)}, num_tokens={self.num_tokens}"
        return f"TokenStore({shown!r}, {counts}, dtype={self.dtype!r})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        part, inside = self._find(index)
        ids, found = self._open_part(part)
        start = found.starts[inside] // ids.itemsize
        return ids[start : start + found.lengths[inside]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_opened": {}, "_opened_columns": {}}
        state.pop("lengths", None)  # a copy maps the files again
        return state

    @property
    def path(self) -> Place:
        """The folder; of several, the first."""
        return self.folders[0].path

    @property
    def shown_path(self) -> str:
        """The folders, as messages name them."""
        return join_items(str(folder.path) for folder in self.folders)

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.parts)

    @property
    def num_documents(self) -> int:
        """The number of documents, including those without a sequence."""
        return int(self._document_offsets[-1])

    @property
    def num_tokens(self) -> int:
        """The number of ids in all sequences."""
        return sum(folder.num_tokens for folder in self.folders)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of all sequences, int32[N]."""
        parts = map(self.part_lengths, range(self.num_parts))
        return np.concatenate([np.empty(0, np.int32), *parts])

    def folder_of(self, number: int) -> StoreFolder:
        """Return the folder of a part."""
        return self._folder_of[number]

    def part_lengths(self, number: int) -> np.ndarray:
        """Map the lengths of one part, int32, without checking its index.

        Raises:
            FolderError: the file changed since the store was opened.
        """
        return self._map_index(number, is_checked=False).lengths

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all ids of one part, and the byte at which each of its sequences starts.

        Its sequences are those from `part_offsets[number]` to `part_offsets[number + 1]`.
        """
        ids, index = self._open_part(number)
        return ids, index.starts

    def fetch_columns(self) -> Iterator[int]:
        """Yield the number of each part when its columns are mapped, which an object store sends
        ahead."""

        def fetch(number: int) -> int:
            self._open_columns(number)
            return number

        return map_ahead(fetch, range(self.num_parts), num_threads=self._num_readers)

    def view_column(self, number: int, name: str) -> Values:
        """Return a column of one part as it is stored: classes in the part's numbers."""
        number = find_index(number, self.num_parts, "part")
        column, value = self.columns[name], self._find_constant(number, name)
        if value is None:
            return column.view(self._open_columns(number).arrays)
        count = self.parts[number]["num_tokens" if column.is_per_token else "num_sequences"]
        return np.broadcast_to(np.array(value, column.dtype), count)

    def finish_values(self, number: int, name: str, values: Values) -> Values:
        """Check entries that were taken from `view_column`; return them with the store's classes.

        Raises:
            FolderError: a value is impossible.
        """
        if self._find_constant(number, name) is not None:
            return values
        return self._open_columns(number).finish(self.columns[name], values)

    @checks_arguments
    def part_column(self, number: int, name: str) -> Values:
        """Return a column of one part, with one entry per sequence, or per token.

        Classes are numbered as in the whole store: see `columns[name].class_names`.

        Raises:
            FolderError: the part's columns are damaged.
            IndexError, KeyError: there is no such part, or no such column.
        """
        if name not in self.columns:
            raise KeyError(_no_column(self, name))
        return self.finish_values(number, name, self.view_column(number, name))

    def part_hashes(self, number: int) -> np.ndarray:
        """Return XXH3-64 of the text of each document of one part, uint64[documents]."""
        return self._open_columns(number).hashes

    def let_pages_go(self) -> None:
        """Release the pages that this process has read; the system's page cache keeps them."""
        for columns in tuple(self._opened_columns.values()):  # copies: other threads may open more
            for array in columns.arrays.values():
                let_pages_go(array)
        for ids, index in tuple(self._opened.values()):
            let_pages_go(ids)
            let_pages_go(index.starts)

    def locate(self, index: SupportsIndex) -> Origin:
        """Find the source file, record and piece that a sequence came from."""
        part, sequence = self._find(index)
        folder = self._folder_of[part]
        first_sequences = self._open_part(part)[1].first_sequences
        inside = int(np.searchsorted(first_sequences, sequence, "right")) - 1
        document = int(self._document_offsets[part]) - folder.first_document + inside
        sources = folder.manifest["sources"]
        firsts = [source["first_document"] for source in sources]
        source = sources[int(np.searchsorted(firsts, document, "right")) - 1]
        return Origin(
            store=str(folder.path),
            source=source["path"],
            record=document - source["first_document"] + 1,
            document=document,
            piece=sequence - int(first_sequences[inside]),
            num_pieces=int(first_sequences[inside + 1] - first_sequences[inside]),
        )

    def count_sequences(self, number: int) -> np.ndarray:
        """Return the number of sequences of each document of one part, int64[documents]."""
        return np.diff(self._open_part(number)[1].first_sequences)

    def number_documents(self, number: int) -> np.ndarray:
        """Return the document number of each sequence of one part, int64[sequences]."""
        first, last = self._document_offsets[number : number + 2].tolist()
        return self.spread(number, np.arange(first, last))

    def spread(self, number: int, values: np.ndarray) -> np.ndarray:
        """Return the value of each sequence's document.

        Args:
            number: of a part.
            values: one for each document of the part.
        """
        counts = self.count_sequences(number)
        return values if (counts == 1).all() else np.repeat(values, counts)

    def read_tokenizer_json(self) -> bytes:
        """Return the tokenizer.json in the store, checked against the manifest."""
        return read_kept_tokenizer(self.path, self.folders[0].manifest)

    def check_digest(self) -> None:
        """Compare the checksums of all files with the manifest, on all cores.

        Raises:
            FolderError: a file was changed or damaged.
        """
        both = zip(self._folder_of, self.parts, strict=True)
        files = [
            (folder.path / file["name"], file) for folder, part in both for file in part["files"]
        ]
        digests = map_ahead(lambda file: at(file[0]).hash(), files, num_threads=count_cores())
        for (path, file), found in zip(files, digests, strict=True):
            if found != file["blake3"]:
                raise FolderError(
                    f"{path}: blake3 differs from the manifest's",
                    hint=DAMAGED_HINT,
                )

    def check_indices(self, first: int = 0, last: int | None = None) -> None:
        """Read every index and compare it with the manifest; several at once in an object store.

        Args:
            first, last: the range of parts; all by default.

        Raises:
            FolderError: an index is missing or damaged, or a ledger does not add up.
        """
        numbers = range(self.num_parts)[first:last]
        counts = map_ahead(self._count_silent, numbers, num_threads=self._num_readers)
        num_silent = dict(zip(numbers, counts, strict=True))
        for folder in self.folders:
            found = [num_silent[number] for number in folder.parts if number in num_silent]
            if len(found) == len(folder.parts) and sum(found) != folder.num_silent:
                raise FolderError(
                    f"{folder.path / MANIFEST_NAME}: {', '.join(SILENT)} add up to "
                    f"{folder.num_silent:,}, the parts have {sum(found):,} documents without a "
                    "sequence"
                )

    def show(self, columns: Mapping[str, Column], store_column: str | None = None) -> TokenStore:
        """Return the same store, read with other columns: some of them, or with more classes.

        Args:
            store_column: name of the column whose class is the folder of each sequence.
        """
        other = copy.copy(self)
        other.columns, other._opened_columns = columns, {}
        if store_column is not None:
            other._store_column = store_column
        other.constants = [other._list_constants(folder) for folder in self.folders]
        return other

    def _list_constants(self, folder: StoreFolder) -> dict[str, int]:
        """Return the value of each column that the files of a folder do not hold."""
        values = {**VALUES_OF_MISSING, self._store_column: folder.number}
        missing = {*self.columns} - {*folder.columns} | {self._store_column}
        return {name: values[name] for name in self.columns if name in missing}

    @property
    def _num_readers(self) -> int:
        return max(at(folder.path).num_readers for folder in self.folders)

    def _find(self, index: SupportsIndex) -> tuple[int, int]:
        """Return the part of a sequence, and its number there."""
        index = find_index(index, len(self), "sequence")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        return part, index - int(self.part_offsets[part])

    def _open_part(self, number: int) -> tuple[np.ndarray, Index]:
        """Map the ids and the index of a part; the most recent ones stay mapped."""
        most = LIMITS.mapped_files // 2  # a part has two maps
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def _map_part(self, number: int) -> tuple[np.ndarray, Index]:
        dtype = np.dtype(self.dtype).newbyteorder("<")
        with self._open_file(number, 0) as (file, _):
            ids = map_regular(file, num_bytes=self.parts[number]["files"][0]["bytes"])
        return ids.view(dtype), self._map_index(number)

    def _map_index(self, number: int, *, is_checked: bool = True) -> Index:
        with self._open_file(number, 1) as (file, path):
            return map_index(file, path, self.parts[number], self.dtype, is_checked=is_checked)

    @contextlib.contextmanager
    def _open_file(self, number: int, place: int) -> Iterator[tuple[Path, Place]]:
        """Yield a local copy of a file of a part, and its path, if the folder is as opened."""
        folder, entry = self._folder_of[number], self.parts[number]["files"][place]
        path = folder.path / entry["name"]
        with folder.opened.while_same(), at(path).open_copy(entry) as file:
            yield file, path

    def _find_constant(self, number: int, name: str) -> int | None:
        """Return the value of a column that the file of a part does not hold."""
        return self.constants[self._folder_of[number].number].get(name)

    def _open_columns(self, number: int) -> PartColumns:
        """Map the columns of a part; the most recent ones stay mapped."""
        number = find_index(number, self.num_parts, "part")
        most = LIMITS.mapped_files // 2  # the ids and lengths take as many
        return keep_mapped(self._opened_columns, number, self._map_columns, max_kept=most)

    def _count_silent(self, number: int) -> int:
        """Check the index of a part; return its number of documents without a sequence."""
        first_sequences = self._map_index(number).first_sequences
        return int((first_sequences[1:] == first_sequences[:-1]).sum())

    def _map_columns(self, number: int) -> PartColumns:
        part, folder = self.parts[number], self._folder_of[number]
        constants = self.constants[folder.number]
        shown = [column for name, column in self.columns.items() if name not in constants]
        with self._open_file(number, 2) as (file, path):
            return PartColumns(file, path, part, folder.columns, shown)


def _no_column(store: TokenStore, name: str) -> str:
    found = join_items(map(quote, store.columns)) or "no columns"
    return f"no column {quote(name)} (found: {found})"


@checks_arguments
def open_store(
    path: AnyPaths, *, check_indices: bool = True, columns: Sequence[str] | None = None
) -> TokenStore:
    """Open a finished token store, or several as one; ids are read when they are asked for.

    Args:
        path: the store's folder. Of several, sequences are numbered over all, in the order given,
            and the classes of a column are those of all stores.
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
            raise ValueError(_no_column(store, name))
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
) -> TokenStore:
    """Open the folders of a store.

    Args:
        check_indices: check every index now.
        without: names of columns to leave out if the folders differ in them.
        wanted: names of columns, of which all others are left out if the folders differ in them.
        prefix: what options have before the names of these columns.
    """
    if not places:
        raise ValueError("no store, expected at least one")
    if len(places) > MAX_STORES:
        raise OptionError(
            f"{len(places):,} stores, expected at most {MAX_STORES:,}",
            hint="tokenize more files into each store",
        )
    folders: list[StoreFolder] = []
    for place in places:
        manifest, digest = read_store_manifest(place)
        folders.append(StoreFolder(place, digest, manifest, folders[-1] if folders else None))
    _check_folders(folders, TWIN_OF_DECODER if prefix else TWIN)
    store = TokenStore(folders)
    if check_indices:
        store.check_indices()
    check_dropped(store, without, prefix=prefix)
    if len(folders) == 1:
        return store
    if wanted is not None:
        known = {name for folder in folders for name in folder.columns}
        without = {*without, *known.difference(wanted)}
    named = [(str(folder.path), folder.columns) for folder in folders]
    return store.show(combine_columns(named, without=without, prefix=prefix))


def check_dropped(store: TokenStore, names: Collection[str], *, prefix: str = "") -> None:
    """Raise OptionError if no folder has a column that is to be left out."""
    known = {name for folder in store.folders for name in folder.columns}
    for name in names:
        if name not in known:
            found = join_items(quote(f"{prefix}{it}") for it in sorted(known)) or "none"
            wrong = quote(f"{prefix}{name}")
            raise OptionError(
                f"--drop-column {wrong}: no store has this column (found: {found})",
                hint="leave out --drop-column, or pass the name of a column",
            )


def choose_columns(
    store: TokenStore,
    *,
    without: Collection[str] = (),
    store_column: str | None = None,
    names: Sequence[str] | None = None,
) -> TokenStore:
    """Return a store with other columns.

    Args:
        without: names of columns to leave out.
        store_column: name of a column to add, whose class is the folder of each sequence.
        names: the classes of that column; None names the folders.

    Raises:
        OptionError: there is already a column of that name.
    """
    if store_column is None and not without:
        return store
    columns = {name: column for name, column in store.columns.items() if name not in without}
    if store_column is not None:
        names = names or name_stores([folder.path for folder in store.folders])
        columns[store_column] = make_store_column(columns, store_column, names)
    return store.show(columns, store_column)


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


def _check_folders(folders: Sequence[StoreFolder], twin_hint: str) -> None:
    """Refuse folders of different tokenizers, and a folder that is named twice.

    Without a tokenizer, they must have the same number of ids.
    """
    seen: dict[str, StoreFolder] = {}
    first = folders[0]
    for folder in folders:
        twin = seen.setdefault(folder.digest, folder)
        if twin is not folder:
            raise OptionError(f"{folder.path}: has the same content as {twin.path}", hint=twin_hint)
        found, expected = (it.manifest["tokenizer_blake3"] for it in (folder, first))
        if (found is None) != (expected is None):
            without, other = (folder, first) if found is None else (first, folder)
            again = shlex.quote(str(without.path)), shlex.quote(str(other.path / "tokenizer.json"))
            raise OptionError(
                f"{without.path}: no tokenizer, {other.path} has one",
                hint=f"import the files of {again[0]} again with --tokenizer {again[1]}",
            )
        if found != expected:
            raise OptionError(
                f"{folder.path}: tokenizer {found}, {first.path} has {expected}",
                hint="tokenize all stores with the same tokenizer",
            )
        for name in ("vocab_size", "dtype", "max_id"):
            if folder.manifest[name] != first.manifest[name]:
                raise OptionError(
                    f"{folder.path}: {name} {folder.manifest[name]}, {first.path} has "
                    f"{first.manifest[name]}",
                    hint="import both with the same --vocab-size",
                )


class Slices(NamedTuple):
    """Some tokens of each of N sequences."""

    indices: np.ndarray  # int64[N], of the sequences
    lengths: np.ndarray  # int64[N], tokens of each slice
    offsets: np.ndarray | None = None  # int64[N], where in its sequence each begins; None is 0

    def take(self, places: np.ndarray) -> Slices:
        """Return some of the slices."""
        offsets = None if self.offsets is None else self.offsets[places]
        return Slices(self.indices[places], self.lengths[places], offsets)


def read_rows(
    store: TokenStore, rows: Slices, *, column: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read rows into one array, in the order of the store.

    Args:
        column: read this column, which has an entry per token, instead of the ids.

    Returns:
        ids [S], and int64[N], where in ids each row begins.
    """
    order = np.argsort(rows.indices, kind="stable")
    rows = rows.take(order)  # copy_rows sorts again, which takes no time
    offsets = to_offsets(rows.lengths)
    dtype = store.dtype if column is None else store.columns[column].dtype
    ids = np.empty(int(offsets[-1]), dtype)
    copy_rows(store, rows, ids, offsets[:-1], column=column)
    starts = np.empty(len(order), np.int64)
    starts[order] = offsets[:-1]
    return ids, starts


def copy_rows(
    store: TokenStore,
    rows: Slices,
    target: np.ndarray,
    target_starts: np.ndarray,
    *,
    column: str | None = None,
) -> None:
    """Copy rows into an array, each to its place there.

    Args:
        column: as for read_rows.
        target_starts: int64[N], where in target each row begins.

    Raises:
        FolderError: a column holds an impossible value.
    """
    order = np.argsort(rows.indices, kind="stable")
    for part, places, sequences in _split(store, rows.indices, order):
        _, lengths, offsets = rows.take(places)
        ids, starts = store.view_part(part)
        begins = starts[sequences] // ids.itemsize
        if offsets is not None:
            begins = begins + offsets
        if column is not None:
            ids = _read_entries(store, part, column, begins, lengths)
            begins = to_offsets(lengths)[:-1]
        copy_ranges(ids, begins, target, target_starts[places], lengths)


def _split(
    store: TokenStore, indices: np.ndarray, order: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each part of some sequences, their places in `indices`, and their numbers there.

    Args:
        order: which sorts the indices.
    """
    in_order = indices[order]
    bounds = np.searchsorted(in_order, store.part_offsets)
    for part in np.flatnonzero(np.diff(bounds)).tolist():
        some = slice(bounds[part], bounds[part + 1])
        yield part, order[some], in_order[some] - store.part_offsets[part]


def _read_entries(
    store: TokenStore, part: int, column: str, begins: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Return some ranges of a column per token, checked, one after another."""
    stored, offsets = np.asarray(store.view_column(part, column)), to_offsets(lengths)
    values = np.empty(int(offsets[-1]), stored.dtype)
    if stored.strides == (0,):  # one value for all, which `copy_ranges` cannot read
        values[:] = stored[:1]
    else:
        copy_ranges(stored, begins, values, offsets[:-1], lengths)
    return np.asarray(store.finish_values(part, column, values))


def read_values(store: TokenStore, indices: np.ndarray, name: str) -> Values:
    """Read a column that has one entry per sequence, for some sequences.

    Args:
        indices: int64[N], the sequence of each entry; -1 is filled.

    Raises:
        FolderError: the column holds an impossible value.
    """
    column = store.columns[name]
    parts = list(_split(store, indices, np.argsort(indices)))  # equal ones in any order
    if not column.is_text:
        values = np.full(len(indices), column.fill, column.dtype)
        for part, places, sequences in parts:
            stored = np.asarray(store.view_column(part, name))
            values[places] = store.finish_values(part, name, stored[sequences])
        return values
    lengths = np.zeros(len(indices), np.int64)
    for part, places, sequences in parts:
        offsets = cast(TextValues, store.view_column(part, name)).offsets
        lengths[places] = offsets[sequences + 1] - offsets[sequences]
    found = to_offsets(lengths)
    texts = TextValues(np.empty(int(found[-1]), np.uint8), found)
    for part, places, sequences in parts:
        view = cast(TextValues, store.view_column(part, name))
        begins = view.offsets[sequences]
        copy_ranges(view.data, begins, texts.data, found[places], lengths[places])
    if texts.find_wrong().any():
        for part, places, _ in parts:  # the first part with a wrong one is named
            store.finish_values(part, name, texts.take(places))
    return texts
