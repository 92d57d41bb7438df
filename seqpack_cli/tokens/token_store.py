"""The folder that `tokenize` writes, opened: every sequence by its index, and the way back.

`open_store(path)` checks names, sizes and every index, then maps the files: `store[i]` is a view of
the disk, and opening costs 4 bytes of memory a sequence (its length).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.execution import count_cores, map_ahead
from seqpack_cli.manifest import MANIFEST_NAME, read_kept_tokenizer
from seqpack_cli.mapping import keep_mapped, let_pages_go
from seqpack_cli.ranges import to_offsets
from seqpack_cli.reading import MAX_MAPPED_FILES, hash_regular, map_regular
from seqpack_cli.tokens.indexed_dataset import Index, read_index
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

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.sha256 = hash_regular(path / MANIFEST_NAME)
        self.dtype: str = manifest["dtype"]
        self.max_id: int = manifest["max_id"]
        parts = manifest["parts"]
        self._opened: dict[int, tuple[np.ndarray, Index]] = {}
        lengths = [self._open_index(part).lengths.copy() for part in parts]
        self.part_offsets = to_offsets([part["num_sequences"] for part in parts])
        self._document_offsets = to_offsets([part["num_documents"] for part in parts])
        self.lengths = np.concatenate([np.empty(0, np.int32), *lengths])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        part = int(np.searchsorted(self.part_offsets, index, "right")) - 1
        ids, starts = self.view_part(part)
        start = starts[index - self.part_offsets[part]] // ids.itemsize
        return ids[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[index] for index in range(len(self)))

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Give all ids of one part, and where in bytes each of its sequences starts.

        Its sequences are those from `part_offsets[number]` up to `part_offsets[number + 1]`.
        """
        ids, index = self._open_part(number)
        return ids, index.starts

    def let_pages_go(self) -> None:
        """Take what was read out of this process's memory; it stays in the system's cache."""
        for ids, index in self._opened.values():
            let_pages_go(ids)
            let_pages_go(index.starts)

    @property
    def num_documents(self) -> int:
        """Count documents, those without a sequence too."""
        return int(self._document_offsets[-1])

    @property
    def num_tokens(self) -> int:
        """Count the ids of all sequences."""
        return int(self.lengths.sum(dtype=np.int64))

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

    def check_sha256(self) -> None:
        """Read every file, on all cores, and compare it with the manifest.

        Raises:
            FolderError: a file is not what tokenize wrote.
        """
        files = [file for part in self.manifest["parts"] for file in part["files"]]
        paths = [self.path / file["name"] for file in files]
        for file, found in zip(
            files, map_ahead(hash_regular, paths, num_threads=count_cores()), strict=True
        ):
            if found != file["sha256"]:
                raise FolderError(
                    f"{self.path / file['name']}: sha256 is not the manifest's",
                    hint="the file was changed or damaged: run tokenize --overwrite",
                )

    def _open_index(self, part: dict[str, Any]) -> Index:
        path = self.path / f"{part['name']}.idx"
        index = read_index(path, dtype=self.dtype, num_tokens=part["num_tokens"])
        found = (len(index.lengths), len(index.first_sequences) - 1)
        if found != (part["num_sequences"], part["num_documents"]):
            raise FolderError(
                f"{path}: {found[0]:,} sequences of {found[1]:,} documents, manifest says "
                f"{part['num_sequences']:,} of {part['num_documents']:,}"
            )
        file, num_bytes = part["files"][0], part["num_tokens"] * np.dtype(self.dtype).itemsize
        if file["bytes"] != num_bytes:
            path = self.path / file["name"]
            raise FolderError(f"{path}: {file['bytes']:,} bytes, expected {num_bytes:,}")
        return index

    def _open_part(self, number: int) -> tuple[np.ndarray, Index]:
        """Map a part; those opened last stay mapped."""
        most = MAX_MAPPED_FILES // 2  # each is two maps
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def _map_part(self, number: int) -> tuple[np.ndarray, Index]:
        part = self.manifest["parts"][number]
        dtype = np.dtype(self.dtype).newbyteorder("<")
        num_bytes = part["num_tokens"] * dtype.itemsize
        mapped = map_regular(self.path / f"{part['name']}.bin", num_bytes=num_bytes)
        return mapped.view(dtype), self._open_index(part)


def open_store(path: str | Path) -> TokenStore:
    """Open a finished token store.

    Raises:
        FolderError: it is incomplete, damaged, or no token store.
    """
    path = Path(path)
    manifest = read_store_manifest(path)
    store = TokenStore(path, manifest)
    check_totals(manifest, path / MANIFEST_NAME)
    return store
