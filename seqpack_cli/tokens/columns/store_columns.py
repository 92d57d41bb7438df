"""The columns of a whole token store, mapped part by part."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.errors import join_items, quote
from seqpack_cli.files.manifest import MANIFEST_NAME, OpenedFolder
from seqpack_cli.files.mapping import keep_mapped, let_pages_go
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import at
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.tokens.columns.column import Column, read_columns
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.part_columns import PartColumns, ShownColumns, columns_name

COLUMNS_FILE = 2  # among the files of a part in the manifest


class StoreColumns:
    """What stands beside the ids of a store: its columns and the hashes of its documents.

    Raises:
        FolderError: the manifest's columns are damaged.
    """

    def __init__(self, folder: OpenedFolder, manifest: dict[str, Any]) -> None:
        self._stored = read_columns(manifest, folder.path / MANIFEST_NAME)
        self._shown = ShownColumns(self._stored)
        self._folder = folder
        self._parts: list[dict[str, Any]] = manifest["parts"]
        self._opened: dict[int, PartColumns] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}  # a copy maps the files again

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns that are read, by name."""
        return self._shown.columns

    @property
    def constants(self) -> Mapping[str, int]:
        """The value of each column that is read but that no file holds, by name."""
        return self._shown.constants

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self._parts)

    def show(self, shown: ShownColumns) -> StoreColumns:
        """Return the same files, read as other columns: some of them, or with more classes."""
        other = copy.copy(self)
        other._shown, other._opened = shown, {}
        return other

    def open_part(self, number: int) -> PartColumns:
        """Map the columns of a part; the most recent ones stay mapped.

        Args:
            number: of the part; a negative one counts from the end, as in a list.

        Raises:
            FolderError: the file is damaged, or changed since the store was opened.
            IndexError: there is no such part.
        """
        number = find_index(number, len(self._parts), "part")
        most = LIMITS.mapped_files // 2  # the ids and lengths take as many
        return keep_mapped(self._opened, number, self._map_part, max_kept=most)

    def iter_parts(self) -> Iterator[PartColumns]:
        """Yield the columns of all parts in turn, fetched ahead from an object store."""
        num_threads = at(self._folder.path).num_readers
        return map_ahead(self.open_part, range(len(self._parts)), num_threads=num_threads)

    def let_pages_go(self) -> None:
        """Release the pages that this process has read; the system's page cache keeps them."""
        for part in tuple(self._opened.values()):  # a copy: other threads may open more
            for array in part.arrays.values():
                let_pages_go(array)

    def read_part(self, number: int, name: str) -> Values:
        """Return a column of a whole part, checked, with the shown classes.

        Raises:
            FolderError: a value is impossible.
            IndexError, KeyError: there is no such part, or no such column.
        """
        if name not in self.columns:
            found = join_items(map(quote, self.columns)) or "no columns"
            raise KeyError(f"no column {quote(name)} (found: {found})")
        part = self.open_part(number)
        return part.finish(name, part.view(name))

    def part_hashes(self, number: int) -> np.ndarray:
        """Return the hash of each document of a part, uint64[documents]."""
        return self.open_part(number).hashes

    def _map_part(self, number: int) -> PartColumns:
        part = self._parts[number]
        path = self._folder.path / columns_name(part["name"])
        with self._folder.while_same(), at(path).open_copy(part["files"][COLUMNS_FILE]) as file:
            return PartColumns(file, path, part, stored=self._stored, shown=self._shown)


class CombinedColumns:
    """What stands beside the ids of several stores: parts are numbered over all of them."""

    def __init__(self, stores: Sequence[StoreColumns]) -> None:
        self._stores = stores
        self._first_parts = to_offsets([store.num_parts for store in stores])

    def open_part(self, number: int) -> PartColumns:
        """Map the columns of a part: see `StoreColumns.open_part`."""
        number = find_index(number, int(self._first_parts[-1]), "part")
        place = int(np.searchsorted(self._first_parts, number, "right")) - 1
        return self._stores[place].open_part(number - int(self._first_parts[place]))

    def iter_parts(self) -> Iterator[PartColumns]:
        """Yield the columns of all parts in turn, fetched ahead from an object store."""
        return chain.from_iterable(store.iter_parts() for store in self._stores)
