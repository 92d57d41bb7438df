"""A token store: read every sequence by its index, and find where it came from.

`store[i]` is a view of a file, mapped when it is first read; indices are not kept in memory.
`lengths` keeps 4 bytes per sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex, overload

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.manifest import OpenedFolder, read_kept_tokenizer
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import Place, at
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.store_columns import StoreColumns
from seqpack_cli.tokens.origin import Origin, find_origin
from seqpack_cli.tokens.store_parts import StoreParts


class TokenStore:
    """The sequences of a token store; `store[i]` is the ids of one, read-only, a slice a list."""

    def __init__(self, path: Place, manifest: dict[str, Any], digest: str) -> None:
        self.folder = OpenedFolder(path, digest)
        self.manifest = manifest
        self.digest = digest  # of the manifest
        self.dtype: str = manifest["dtype"]
        self.max_id: int = manifest["max_id"]
        self.stored_columns = StoreColumns(self.folder, manifest)
        self._parts, parts = StoreParts(self.folder, manifest), manifest["parts"]
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
        ids, found = self._parts.open_part(part)
        inside = index - self.part_offsets[part]
        start = found.starts[inside] // ids.itemsize
        return ids[start : start + found.lengths[inside]]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("lengths", None)  # mapped again
        return state

    @property
    def path(self) -> Place:
        """The folder."""
        return self.folder.path

    @property
    def stores(self) -> tuple[TokenStore, ...]:
        """The store itself: see `CombinedStore.stores`."""
        return (self,)

    def find_part(self, number: int) -> tuple[TokenStore, int]:
        """Return the store of a part, and the number of the part there."""
        return self, number

    @property
    def shown_path(self) -> str:
        """The folder, as messages name it."""
        return str(self.path)

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
        return self._parts.map_lengths(number)

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all ids of one part, and the byte at which each of its sequences starts.

        Its sequences are those from `part_offsets[number]` to `part_offsets[number + 1]`.
        """
        ids, index = self._parts.open_part(number)
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
        self._parts.let_pages_go()

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.part_offsets) - 1

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
        firsts = self._parts.open_part(part)[1].first_sequences
        first = int(self._document_offsets[part])
        return find_origin(self.path, self.manifest, firsts, inside, first)

    def count_sequences(self, number: int) -> np.ndarray:
        """Return the number of sequences of each document of one part, int64[documents]."""
        return np.diff(self._parts.open_part(number)[1].first_sequences)

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
                    hint="the store was changed or damaged: make it again with --overwrite",
                )

    def check_indices(self, first: int = 0, last: int | None = None) -> None:
        """Read every index and compare it with the manifest; several at once in an object store.

        Args:
            first, last: the range of parts; all by default.

        Raises:
            FolderError: an index is missing or damaged.
        """
        self._parts.check_indices(first, last)
