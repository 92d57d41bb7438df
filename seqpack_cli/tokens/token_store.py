"""Open a token store: read every sequence by its index, and find where it came from.

`open_store(path)` checks names, sizes and every index, one part after the other, and keeps none of
them in memory: `store[i]` is a view of a file, mapped when it is first read. `lengths` keeps 4
bytes per sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex, overload

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.manifest import MANIFEST_NAME, read_kept_tokenizer
from seqpack_cli.files.mapping import MAX_MAPPED_FILES, keep_mapped, let_pages_go, map_regular
from seqpack_cli.files.opened_folder import OpenedFolder
from seqpack_cli.files.places import at
from seqpack_cli.files.url import AnyPath, Place, parse_place
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.store_columns import StoreColumns
from seqpack_cli.tokens.indexed_dataset import Index, map_lengths, read_index
from seqpack_cli.tokens.origin import Origin, find_origin
from seqpack_cli.tokens.store_manifest import check_totals, read_store_manifest


class TokenStore:
    """The sequences of a token store; `store[i]` is the ids of one, read-only, a slice a list."""

    def __init__(self, path: Place, manifest: dict[str, Any], digest: str) -> None:
        self.folder = OpenedFolder(path, digest)
        self.manifest = manifest
        self.digest = digest  # of the manifest
        self.dtype: str = manifest["dtype"]
        self.max_id: int = manifest["max_id"]
        self.stored_columns = StoreColumns(self.folder, manifest)
        parts = manifest["parts"]
        self._opened: dict[int, tuple[np.ndarray, Index]] = {}
        self.part_offsets = to_offsets([part["num_sequences"] for part in parts])
        self._document_offsets = to_offsets([part["num_documents"] for part in parts])

    def __len__(self) -> int:
        return int(self.part_offsets[-1])

    def __repr__(self) -> str:
        counts = f"num_sequences={len(self)}, num_tokens={self.num_tokens}"
        return f"TokenStore({str(self.path)!r}, {counts}, dtype={self.dtype!r})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = find_index(index, len(self), "sequence")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        ids, found = self._open_part(part)
        inside = index - self.part_offsets[part]
        start = found.starts[inside] // ids.itemsize
        return ids[start : start + found.lengths[inside]]

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_opened": {}}  # a copy maps the files again
        state.pop("lengths", None)
        return state

    @property
    def path(self) -> Place:
        """The folder."""
        return self.folder.path

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(len(self)))

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of all sequences, int32[N]."""
        parts = range(len(self.manifest["parts"]))
        return np.concatenate([np.empty(0, np.int32), *map(self.part_lengths, parts)])

    def part_lengths(self, number: int) -> np.ndarray:
        """Map the lengths of one part, int32, without checking its index.

        Raises:
            FolderError: the file changed since the store was opened.
        """
        part = self.manifest["parts"][number]
        path = self.path / f"{part['name']}.idx"
        counts = part["num_sequences"], part["num_documents"]
        with self.folder.while_same(), at(path).open_copy(part["files"][1]) as file:
            return map_lengths(file, path, *counts, dtype=self.dtype)

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all ids of one part, and the byte at which each of its sequences starts.

        Its sequences are those from `part_offsets[number]` to `part_offsets[number + 1]`.
        """
        ids, index = self._open_part(number)
        return ids, index.starts

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name, in the order in which they were kept."""
        return self.stored_columns.columns

    @checks_arguments
    def part_column(self, number: int, name: str) -> Values:
        """Return a column of one part, with one entry per sequence, or per token.

        Classes are numbered as in the whole store: see `columns[name].class_names`.

        Raises:
            FolderError: the part's columns are damaged.
            IndexError, KeyError: there is no such part, or no such column.
        """
        return self.stored_columns.read_part(number, name)

    def part_hashes(self, number: int) -> np.ndarray:
        """Return XXH3-64 of the text of each document of one part, uint64[documents]."""
        return self.stored_columns.part_hashes(number)

    def let_pages_go(self) -> None:
        """Release the pages that this process has read; the system's page cache keeps them."""
        self.stored_columns.let_pages_go()
        for ids, index in tuple(self._opened.values()):  # a copy: other threads may open more
            let_pages_go(ids)
            let_pages_go(index.starts)

    @property
    def num_documents(self) -> int:
        """The number of documents, including those without a sequence."""
        return int(self._document_offsets[-1])

    @property
    def num_tokens(self) -> int:
        """The number of ids in all sequences."""
        return sum(part["num_tokens"] for part in self.manifest["parts"])

    def locate(self, index: SupportsIndex) -> Origin:
        """Find the source file, record and piece that a sequence came from."""
        index = find_index(index, len(self), "sequence")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        inside = index - int(self.part_offsets[part])
        firsts = self._open_part(part)[1].first_sequences
        return find_origin(self.manifest, firsts, inside, int(self._document_offsets[part]))

    def find_documents(self, number: int) -> np.ndarray:
        """Find the documents of one part that have sequences, bool[documents]."""
        found: np.ndarray = np.diff(self._open_part(number)[1].first_sequences) > 0
        return found

    def number_documents(self, number: int) -> np.ndarray:
        """Return the document number of each sequence of one part, int64[sequences]."""
        counts = np.diff(self._open_part(number)[1].first_sequences)
        first = int(self._document_offsets[number])
        return np.repeat(np.arange(first, first + len(counts)), counts)

    def read_tokenizer_json(self) -> bytes:
        """Return the tokenizer.json in the store, checked against the manifest."""
        return read_kept_tokenizer(self.path, self.manifest)

    def check_digest(self) -> None:
        """Compare the checksums of all files with the manifest, on all cores.

        Raises:
            FolderError: a file was changed or damaged.
        """
        files = [file for part in self.manifest["parts"] for file in part["files"]]
        paths = [self.path / file["name"] for file in files]
        digests = map_ahead(lambda path: at(path).hash(), paths, num_threads=count_cores())
        for file, found in zip(files, digests, strict=True):
            if found != file["blake3"]:
                raise FolderError(
                    f"{self.path / file['name']}: blake3 differs from the manifest's",
                    hint="the file was changed or damaged: run tokenize --overwrite",
                )

    def check_indices(self, first: int = 0, last: int | None = None) -> None:
        """Read every index and compare it with the manifest; several at once in an object store.

        Args:
            first, last: the range of parts; all by default.

        Raises:
            FolderError: an index is missing or damaged.
        """
        num_threads = at(self.path).num_readers
        parts = self.manifest["parts"][first:last]
        for _ in map_ahead(self._open_index, parts, num_threads=num_threads):
            pass

    def _open_index(self, part: dict[str, Any]) -> Index:
        path = self.path / f"{part['name']}.idx"
        with at(path).open_copy(part["files"][1]) as file:
            index = read_index(file, path, dtype=self.dtype, num_tokens=part["num_tokens"])
        found = (len(index.lengths), len(index.first_sequences) - 1)
        if found != (part["num_sequences"], part["num_documents"]):
            raise FolderError(
                f"{path}: {found[0]:,} sequences of {found[1]:,} documents, manifest says "
                f"{part['num_sequences']:,} of {part['num_documents']:,}"
            )
        entry, num_bytes = part["files"][0], part["num_tokens"] * np.dtype(self.dtype).itemsize
        if entry["bytes"] != num_bytes:
            path = self.path / entry["name"]
            raise FolderError(f"{path}: {entry['bytes']:,} bytes, expected {num_bytes:,}")
        return index

    def _open_part(self, number: int) -> tuple[np.ndarray, Index]:
        """Map a part; the most recent ones stay mapped."""
        most = MAX_MAPPED_FILES // 2  # a part has two maps
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def _map_part(self, number: int) -> tuple[np.ndarray, Index]:
        part = self.manifest["parts"][number]
        dtype = np.dtype(self.dtype).newbyteorder("<")
        num_bytes = part["num_tokens"] * dtype.itemsize
        with self.folder.while_same():
            with at(self.path / f"{part['name']}.bin").open_copy(part["files"][0]) as file:
                mapped = map_regular(file, num_bytes=num_bytes)
            return mapped.view(dtype), self._open_index(part)


@checks_arguments
def open_store(path: AnyPath, *, check_indices: bool = True) -> TokenStore:
    """Open a finished token store; ids are read when they are asked for.

    Args:
        path: the store's folder.
        check_indices: check every index now, not each when it is first used.

    Raises:
        FolderError: it is incomplete, damaged, or not a token store.
    """
    path = parse_place(path)
    manifest, digest = read_store_manifest(path)
    store = TokenStore(path, manifest, digest)
    if check_indices:
        store.check_indices()
    check_totals(manifest, path / MANIFEST_NAME)
    return store
