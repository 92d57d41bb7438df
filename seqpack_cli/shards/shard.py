"""One memory-mapped shard file.

Its offsets are checked when it is opened. Before a batch is read the arrays of its block are, 256
batches together, and then its own ids, so that no data of a manipulated file reaches torch
unchecked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.files.places import Place, at
from seqpack_cli.files.tensor_file import map_tensor_file
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index
from seqpack_cli.shards.arrays import NO_COLUMN, Columns, ShardArrays
from seqpack_cli.shards.layouts import Batch, Geometry, Tensors, is_in_range
from seqpack_cli.shards.manifest import choose_tensors, describe_shard, find_side
from seqpack_cli.shards.packed import PackedArrays
from seqpack_cli.shards.padded import PaddedArrays
from seqpack_cli.shards.shared_rows import StreamsArrays, VarlenArrays

ARRAYS: dict[str, type[ShardArrays]] = {  # by layout
    "packed": PackedArrays,
    "padded": PaddedArrays,
    "varlen": VarlenArrays,
    "streams": StreamsArrays,
}


class Batches:
    """A sequence of batches, each checked; an index may be negative, a slice is a list."""

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, index: int) -> Batch:
        """Return a batch by its number from 0, checked."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: SupportsIndex) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self.take(number) for number in range(*index.indices(len(self)))]
        return self.take(find_index(index, len(self), "batch"))

    def __iter__(self) -> Iterator[Batch]:
        return map(self.take, range(len(self)))


class Shard(Batches):
    """One mapped shard file whose arrays and offsets were checked."""

    def __init__(
        self,
        path: Place,
        entry: dict[str, Any],
        manifest: dict[str, Any],
        *,
        columns: Columns = NO_COLUMN,
        first_batch: int = 0,
    ) -> None:
        self.path = path
        self.entry = entry
        self.first_batch = first_batch  # in the whole set
        self.layout: str = manifest["layout"]
        self.pad_id: int = manifest["pad_id"]
        self.padding_side: str = manifest["padding_side"]
        self.max_id: int = manifest["max_id"]
        with at(path).open_copy(entry) as file:
            mapped, metadata = map_tensor_file(file, path, num_bytes=entry["bytes"])
        tensors = choose_tensors(mapped, find_side(manifest))
        geometry = Geometry.of_manifest(manifest)
        self._set_arrays(ARRAYS[self.layout](tensors, geometry, columns=columns))
        try:
            self._check_tensors(manifest, metadata)
        except ValueError as error:
            raise FolderError(f"{path}: {error}") from error

    def _set_arrays(self, arrays: ShardArrays) -> None:
        self.arrays = arrays
        self._token_columns = [it for it in arrays.columns.values() if it.is_per_token]
        self._is_unsound: dict[tuple[int, int], np.ndarray] = {}  # by block and its size

    def _check_tensors(self, manifest: dict[str, Any], metadata: dict[str, str]) -> None:
        """Raise ValueError unless the file is as the manifest says, and its offsets are sound."""
        expected = dict.fromkeys(self.arrays.tensor_names, "int64") | {"data": manifest["dtype"]}
        for column in self.columns.values():
            expected |= column.tensor_dtypes
        dtypes = {name: array.dtype.name for name, array in self.tensors.items()}
        for name in (*expected, *dtypes):
            found, wanted = dtypes.get(name, "missing"), expected.get(name, "no such array")
            if found != wanted:
                raise ValueError(f"{name} is {found}, expected {wanted}")
        for name, value in describe_shard(manifest, find_side(manifest)).items():
            if metadata.get(name) != value:
                found = quote(metadata.get(name))
                raise ValueError(f"{name} is {found}, manifest says {quote(value)}")
        self.arrays.check_offsets()
        for name, count in (("num_batches", len(self)), ("num_rows", len(self.tensors["lengths"]))):
            if count != self.entry[name]:
                raise ValueError(f"{name} is {count:,}, manifest says {self.entry[name]:,}")

    @property
    def columns(self) -> Columns:
        """The columns by name."""
        return self.arrays.columns

    @property
    def tensors(self) -> Tensors:
        """The arrays of the file by name."""
        return self.arrays.tensors

    def __len__(self) -> int:
        return len(self.arrays)

    def __repr__(self) -> str:
        return f"Shard({str(self.path)!r}, layout={self.layout!r}, num_batches={len(self)})"

    def take(self, index: int) -> Batch:
        """Return a batch by its number from 0, checked.

        All arrays but the ids and columns per token are checked once, for many batches together, at
        1 ns per token; a batch then takes a fifth of the time that it takes alone.
        """
        size = LIMITS.batches_per_check
        block, inside = divmod(index, size)
        is_unsound = self._is_unsound.get((block, size))
        if is_unsound is None:
            if not 0 <= index < len(self):
                return self[index]
            some = self.arrays.cut(block * size, min((block + 1) * size, len(self)))
            is_unsound = some.find_unsound(max_id=self.max_id, cells=False)
            self._is_unsound[block, size] = is_unsound
            let_pages_go(self.tensors["data"])
        if is_unsound[inside]:
            self.check(index)
        batch = self.view(index)
        is_sound = is_in_range(batch.data, self.max_id)
        is_sound = is_sound and batch.has_right_padding(batch.data, self.pad_id)
        for column in self._token_columns:
            values = np.asarray(batch.columns[column.name])
            is_sound = is_sound and column.is_sound(values)
            is_sound = is_sound and batch.has_right_padding(values, column.fill)
        if not is_sound:
            self.check(index)
        return batch

    def check(self, index: int) -> None:
        """Raise FolderError if a batch is unsound."""
        try:
            self.arrays.cut(index, index + 1).check(max_id=self.max_id)
        except ValueError as error:
            raise FolderError(f"{self.path}: batch {index}: {error}") from error

    def check_all(self, *, cells: bool = True) -> None:
        """Raise FolderError about the first batch that is unsound.

        Args:
            cells: see `ShardArrays.check`.
        """
        for index in np.flatnonzero(self.find_unsound(cells=cells)).tolist():
            self.check(index)

    def with_tensors(self, tensors: Tensors, columns: Columns | None = None) -> Shard:
        """Return a copy with other arrays, whose offsets are not checked, and maybe columns."""
        other = copy.copy(self)
        other._set_arrays(self.arrays.with_tensors(tensors, columns))
        return other

    def find_unsound(self, *, cells: bool = True) -> np.ndarray:
        """Find all batches that fail their checks, bool[batches]; see `ShardArrays.check`."""
        return self.arrays.find_unsound(max_id=self.max_id, cells=cells)

    def row(self, position: int) -> np.ndarray:
        """Return the ids of a row, counted through the shard; its batch must have been checked."""
        index, inside = self.arrays.find_batch(position)
        return self.view(index).row(inside)

    def check_digest(self) -> None:
        """Raise FolderError if the file's checksum differs from the manifest's."""
        if at(self.path).hash() != self.entry["blake3"]:
            raise FolderError(f"{self.path}: blake3 differs from the manifest's")

    def view(self, index: int) -> Batch:
        """Return a batch without checking it."""
        return self.arrays.view(index)
