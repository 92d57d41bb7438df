"""The folder that `tokenize` writes, opened: every sequence by its index, and the way back.

`open_store(path)` checks names, sizes and every index, one part after the other, and keeps nothing
of them: `store[i]` is a view of the disk, mapped when it is asked for. Who asks for all `lengths`
at once holds 4 bytes a sequence from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.manifest import MANIFEST_NAME, read_kept_tokenizer
from seqpack_cli.files.mapping import (
    MAX_MAPPED_FILES,
    keep_mapped,
    let_pages_go,
    map_regular,
    view_array,
)
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place, parse_place
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.tokens.indexed_dataset import (
    CODE_OF_DTYPE,
    HEADER,
    MAGIC,
    VERSION,
    Index,
    read_index,
)
from seqpack_cli.tokens.store_manifest import check_totals, read_store_manifest


@dataclass(frozen=True)
class Origin:
    """Where a sequence came from."""

    source: str  # path of the input file
    record: int  # of that file, from 1: the line number of a line file
    document: int  # of the whole store, from 0
    piece: int  # of the document, from 0
    num_pieces: int


class TokenStore:
    """The sequences of a token store; `store[i]` gives the ids of one, read-only."""

    def __init__(self, path: Place, manifest: dict[str, Any], digest: str) -> None:
        self.path = path
        self.manifest = manifest
        self.digest = digest  # of the manifest
        self.dtype: str = manifest["dtype"]
        self.max_id: int = manifest["max_id"]
        parts = manifest["parts"]
        self._opened: dict[int, tuple[np.ndarray, Index]] = {}
        self.part_offsets = to_offsets([part["num_sequences"] for part in parts])
        self._document_offsets = to_offsets([part["num_documents"] for part in parts])

    def __len__(self) -> int:
        return int(self.part_offsets[-1])

    def __getitem__(self, index: int) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        ids, found = self._open_part(part)
        inside = index - self.part_offsets[part]
        start = found.starts[inside] // ids.itemsize
        return ids[start : start + found.lengths[inside]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(len(self)))

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Read the lengths of all sequences, int32[N]."""
        parts = range(len(self.manifest["parts"]))
        return np.concatenate([np.empty(0, np.int32), *map(self.part_lengths, parts)])

    def part_lengths(self, number: int) -> np.ndarray:
        """Map the lengths of one part, int32, and nothing but them: its index is not checked.

        Raises:
            FolderError: the file is not what it was when the store was opened.
        """
        part = self.manifest["parts"][number]
        path = self.path / f"{part['name']}.idx"
        num_sequences, num_firsts = part["num_sequences"], part["num_documents"] + 1
        code = CODE_OF_DTYPE[self.dtype]
        header = HEADER.pack(MAGIC, VERSION, code, num_sequences, num_firsts)
        with at(path).open_copy(part["files"][1]) as file:
            num_bytes = len(header) + 12 * num_sequences + 8 * num_firsts
            mapped = map_regular(file, num_bytes=num_bytes)
        if mapped[: len(header)].tobytes() != header:
            raise FolderError(f"{path}: begins with another header than the manifest says")
        lengths: np.ndarray = view_array(mapped, "<i4", count=num_sequences, offset=len(header))
        return lengths

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Give all ids of one part, and where in bytes each of its sequences starts.

        Its sequences are those from `part_offsets[number]` up to `part_offsets[number + 1]`.
        """
        ids, index = self._open_part(number)
        return ids, index.starts

    def let_pages_go(self) -> None:
        """Take what was read out of this process's memory; it stays in the system's cache."""
        for ids, index in tuple(self._opened.values()):  # other threads may open more
            let_pages_go(ids)
            let_pages_go(index.starts)

    @property
    def num_documents(self) -> int:
        """Count documents, those without a sequence too."""
        return int(self._document_offsets[-1])

    @property
    def num_tokens(self) -> int:
        """Count the ids of all sequences."""
        return sum(part["num_tokens"] for part in self.manifest["parts"])

    def locate(self, index: int) -> Origin:
        """Find the source file, record and piece that a sequence came from."""
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        inside = index - int(self.part_offsets[part])
        firsts = self._open_part(part)[1].first_sequences
        document_inside = int(np.searchsorted(firsts, inside, "right")) - 1
        document = int(self._document_offsets[part]) + document_inside
        sources = self.manifest["sources"]
        source_firsts = [source["first_document"] for source in sources]
        source = sources[int(np.searchsorted(source_firsts, document, "right")) - 1]
        return Origin(
            source=source["path"],
            record=document - source["first_document"] + 1,
            document=document,
            piece=inside - int(firsts[document_inside]),
            num_pieces=int(firsts[document_inside + 1] - firsts[document_inside]),
        )

    def number_documents(self, number: int) -> np.ndarray:
        """Give the document of each sequence of one part, int64[sequences]."""
        counts = np.diff(self._open_part(number)[1].first_sequences)
        first = int(self._document_offsets[number])
        return np.repeat(np.arange(first, first + len(counts)), counts)

    def read_tokenizer_json(self) -> bytes:
        """Read the tokenizer.json in the store, checked against the manifest."""
        return read_kept_tokenizer(self.path, self.manifest)

    def check_digest(self) -> None:
        """Read every file, on all cores, and compare it with the manifest.

        Raises:
            FolderError: a file is not what tokenize wrote.
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
        """Read every index and compare it with the manifest, some at once where they are far.

        Args:
            first, last: parts, all by default.

        Raises:
            FolderError: one is missing or damaged.
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
        """Map a part; those opened last stay mapped."""
        most = MAX_MAPPED_FILES // 2  # each is two maps
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def _map_part(self, number: int) -> tuple[np.ndarray, Index]:
        part = self.manifest["parts"][number]
        dtype = np.dtype(self.dtype).newbyteorder("<")
        num_bytes = part["num_tokens"] * dtype.itemsize
        with at(self.path / f"{part['name']}.bin").open_copy(part["files"][0]) as file:
            mapped = map_regular(file, num_bytes=num_bytes)
        return mapped.view(dtype), self._open_index(part)


def open_store(path: str | Place, *, check_indices: bool = True) -> TokenStore:
    """Open a finished token store.

    Args:
        check_indices: look into every index at once, not only into those that are asked for.

    Raises:
        FolderError: it is incomplete, damaged, or no token store.
    """
    path = parse_place(path)
    manifest, digest = read_store_manifest(path)
    store = TokenStore(path, manifest, digest)
    if check_indices:
        store.check_indices()
    check_totals(manifest, path / MANIFEST_NAME)
    return store
