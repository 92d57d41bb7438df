"""The ids of a token store, part by part: indices are checked, ids mapped when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.manifest import OpenedFolder
from seqpack_cli.files.mapping import keep_mapped, let_pages_go, map_regular
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import at
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.indexed_dataset import Index, map_lengths, read_index


class StoreParts:
    """The `.bin` and `.idx` files of a store."""

    def __init__(self, folder: OpenedFolder, manifest: dict[str, Any]) -> None:
        self._folder = folder
        self._dtype: str = manifest["dtype"]
        self._parts: list[dict[str, Any]] = manifest["parts"]
        self._opened: dict[int, tuple[np.ndarray, Index]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}  # a copy maps the files again

    def map_lengths(self, number: int) -> np.ndarray:
        """Map the lengths of one part, int32, without checking its index.

        Raises:
            FolderError: the file changed since the store was opened.
        """
        part = self._parts[number]
        path = self._folder.path / f"{part['name']}.idx"
        counts = part["num_sequences"], part["num_documents"]
        with self._folder.while_same(), at(path).open_copy(part["files"][1]) as file:
            return map_lengths(file, path, *counts, dtype=self._dtype)

    def open_part(self, number: int) -> tuple[np.ndarray, Index]:
        """Map the ids and the index of a part; the most recent ones stay mapped."""
        most = LIMITS.mapped_files // 2  # a part has two maps
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def let_pages_go(self) -> None:
        """Release the pages that this process has read; the system's page cache keeps them."""
        for ids, index in tuple(self._opened.values()):  # a copy: other threads may open more
            let_pages_go(ids)
            let_pages_go(index.starts)

    def check_indices(self, first: int = 0, last: int | None = None) -> None:
        """Read the indices of some parts and compare them with the manifest.

        Raises:
            FolderError: an index is missing or damaged.
        """
        num_threads = at(self._folder.path).num_readers
        for _ in map_ahead(self._open_index, self._parts[first:last], num_threads=num_threads):
            pass

    def _map_part(self, number: int) -> tuple[np.ndarray, Index]:
        part = self._parts[number]
        dtype = np.dtype(self._dtype).newbyteorder("<")
        path, num_bytes = self._folder.path / f"{part['name']}.bin", part["num_tokens"]
        with self._folder.while_same():
            with at(path).open_copy(part["files"][0]) as file:
                mapped = map_regular(file, num_bytes=num_bytes * dtype.itemsize)
            return mapped.view(dtype), self._open_index(part)

    def _open_index(self, part: dict[str, Any]) -> Index:
        folder = self._folder.path
        path = folder / f"{part['name']}.idx"
        with at(path).open_copy(part["files"][1]) as file:
            index = read_index(file, path, dtype=self._dtype, num_tokens=part["num_tokens"])
        found = (len(index.lengths), len(index.first_sequences) - 1)
        if found != (part["num_sequences"], part["num_documents"]):
            raise FolderError(
                f"{path}: {found[0]:,} sequences of {found[1]:,} documents, manifest says "
                f"{part['num_sequences']:,} of {part['num_documents']:,}"
            )
        entry, num_bytes = part["files"][0], part["num_tokens"] * np.dtype(self._dtype).itemsize
        if entry["bytes"] != num_bytes:
            path = folder / entry["name"]
            raise FolderError(f"{path}: {entry['bytes']:,} bytes, expected {num_bytes:,}")
        return index
