"""The folder that `pack` writes, opened: a sequence of batches, each checked when it is asked for.

`open_shards(path)` reads the manifest and checks names and sizes; a shard is mapped and its offsets
checked when its first batch is asked for, a batch when it is asked for. So nothing that a stranger
put into a shard reaches torch unchecked, and opening costs the same for any size.
"""

from __future__ import annotations

import bisect
import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.manifest import MANIFEST_NAME, check_files, read_kept_tokenizer
from seqpack_cli.mapping import let_pages_go
from seqpack_cli.ranges import to_offsets
from seqpack_cli.reading import MAX_MAPPED_FILES, hash_regular
from seqpack_cli.shards.layouts import (
    Batch,
    check_ids,
    check_offsets,
    is_in_range,
    tensor_names,
    view_batch,
    view_ids,
)
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_file import map_shard_file
from seqpack_cli.shards.shard_manifest import describe_shard, has_filler, read_shards_manifest
from seqpack_cli.shards.soundness import find_unsound, find_unsound_index

BYTES_KEPT = 16 << 20  # of ids that `take` has read


class Shard:
    """One mapped shard file whose arrays and offsets were checked."""

    _viewed: tuple[int, Batch] | None = None  # the batch whose row was asked for last

    def __init__(self, path: Path, entry: dict[str, Any], manifest: dict[str, Any]) -> None:
        check_files(path.parent, [entry])
        self.path = path
        self.entry = entry
        self.layout: str = manifest["layout"]
        self.pad_id: int = manifest["pad_id"]
        self.padding_side: str = manifest["padding_side"]
        self.max_id: int = manifest["max_id"]
        self.tensors, metadata = map_shard_file(path)
        self._check_tensors(manifest, metadata)

    def __len__(self) -> int:
        return len(self.tensors["data_offsets"]) - 1

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        try:
            batch = self.view(index)
            batch.check(pad_id=self.pad_id)
            check_ids(batch, max_id=self.max_id)
        except ValueError as error:
            raise FolderError(f"{self.path}: batch {index}: {error}") from error
        return batch

    def take(self, index: int) -> Batch:
        """Give a batch, checked as `shard[index]` is, for who asks for many.

        The index arrays of the whole shard are checked at the first one, at 1 ns a token; then a
        batch costs a tenth.
        """
        if not 0 <= index < len(self) or self._is_unsound[index]:
            return self[index]  # which says what is wrong
        batch = self.view(index)
        ids = view_ids(batch)
        is_sound = is_in_range(ids, self.max_id) and not (
            isinstance(batch, PaddedBatch) and ((ids != self.pad_id) & ~batch.mask).any()
        )
        return batch if is_sound else self[index]

    @functools.cached_property
    def _is_unsound(self) -> np.ndarray:
        return find_unsound_index(self.layout, self.tensors)

    def with_tensors(self, tensors: dict[str, np.ndarray]) -> Shard:
        """Give this shard with other arrays, whose offsets are not checked."""
        other = copy.copy(self)
        other.tensors = tensors
        other._viewed = None
        other.__dict__.pop("_is_unsound", None)
        return other

    def find_unsound(self) -> np.ndarray:
        """Find the batches that would be refused, all at once, bool[batches]."""
        return find_unsound(
            self.layout,
            self.tensors,
            pad_id=self.pad_id,
            padding_side=self.padding_side,
            max_id=self.max_id,
        )

    def row(self, position: int) -> np.ndarray:
        """Give the ids of one row, counted through the shard, of a batch that was checked."""
        offsets = self.tensors["sequence_offsets"]
        index = int(np.searchsorted(offsets, position, "right")) - 1
        if self._viewed is None or self._viewed[0] != index:
            self._viewed = index, self.view(index)  # many rows of one batch are asked for
        return self._viewed[1].row(int(position - offsets[index]))

    def check_sha256(self) -> None:
        """Raise FolderError unless the file is what pack wrote."""
        if hash_regular(self.path) != self.entry["sha256"]:
            raise FolderError(f"{self.path}: sha256 is not the manifest's")

    def view(self, index: int) -> Batch:
        """Give a batch that was checked before."""
        return view_batch(self.layout, self.tensors, index, padding_side=self.padding_side)

    def _check_tensors(self, manifest: dict[str, Any], metadata: dict[str, str]) -> None:
        expected = tensor_names(self.layout, filler=has_filler(manifest))
        if sorted(self.tensors) != sorted(expected):
            raise FolderError(f"{self.path}: holds {list(self.tensors)}, expected {expected}")
        for name, array in self.tensors.items():
            dtype = manifest["dtype"] if name == "data" else "int64"
            if array.dtype != np.dtype(dtype):
                raise FolderError(f"{self.path}: {name} is {array.dtype}, expected {dtype}")
        for name, value in describe_shard(manifest).items():
            if metadata.get(name) != value:
                found = quote(metadata.get(name))
                raise FolderError(f"{self.path}: {name} is {found}, manifest says {quote(value)}")
        try:
            check_offsets(self.layout, self.tensors)
        except ValueError as error:
            raise FolderError(f"{self.path}: {error}") from error
        for name, num_found in (
            ("num_batches", len(self)),
            ("num_rows", len(self.tensors["lengths"])),
        ):
            if num_found != self.entry[name]:
                raise FolderError(
                    f"{self.path}: {name} is {num_found:,}, manifest says {self.entry[name]:,}"
                )


class ShardSet:
    """The batches of all shards; `shards[i]` gives one, checked, as views of the disk."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.layout: str = manifest["layout"]
        entries = manifest["shards"]
        counts = [entry["num_batches"] for entry in entries]
        self.batch_offsets = to_offsets(counts)
        self._starts: list[int] = self.batch_offsets.tolist()  # found faster than in an array
        self._num_bytes_read = 0
        self._opened: dict[int, Shard] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Batch:
        number, inside = self.find(index)
        return self.open_shard(number)[inside]

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))

    def take(self, index: int) -> Batch:
        """Give a batch, checked, for who asks for many: see `Shard.take`.

        What was read leaves this process's memory every BYTES_KEPT; the system's cache keeps it.
        """
        number, inside = self.find(index)
        if self._num_bytes_read > BYTES_KEPT:
            for shard in self._opened.values():
                let_pages_go(shard.tensors["data"])
            self._num_bytes_read = 0
        batch = self.open_shard(number).take(inside)
        self._num_bytes_read += view_ids(batch).nbytes
        return batch

    def count_cells(self) -> np.ndarray:
        """Count the ids and padding cells of each batch, int64[batches]; maps every shard."""
        shards = (self.open_shard(number) for number in range(self.num_shards))
        return np.concatenate([np.diff(shard.tensors["data_offsets"]) for shard in shards])

    @functools.cached_property
    def sha256(self) -> str:
        """Give the sha256 of the manifest, which names that of every shard."""
        return hash_regular(self.path / MANIFEST_NAME)

    @property
    def num_shards(self) -> int:
        """Count the shard files."""
        return len(self.manifest["shards"])

    def find(self, index: int) -> tuple[int, int]:
        """Give the shard of a batch, and the batch's number inside it."""
        if not 0 <= index < self._starts[-1]:
            raise IndexError(f"batch {index} of {len(self)}")
        number = bisect.bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def open_shard(self, number: int) -> Shard:
        """Map one shard, checked; those opened last stay mapped.

        Raises:
            FolderError: it is missing, of another size, or its arrays do not belong together.
        """
        shard = self._opened.get(number)
        if shard is None:
            entry = self.manifest["shards"][number]
            shard = Shard(self.path / entry["name"], entry, self.manifest)
            if len(self._opened) >= MAX_MAPPED_FILES:
                del self._opened[next(iter(self._opened))]
            self._opened[number] = shard
        return shard

    def find_store(self) -> Path | None:
        """Give the folder of the token store if there still is one where the manifest says."""
        try:
            path = (self.path.resolve() / self.manifest["tokens_path"]).resolve()
            return path if path.is_dir() else None
        except (OSError, ValueError):  # a path that no file system takes
            return None

    def read_tokenizer_json(self) -> bytes:
        """Read the tokenizer.json in the folder, checked against the manifest."""
        return read_kept_tokenizer(self.path, self.manifest)


def open_shards(path: str | Path, *, check_present: bool = True) -> ShardSet:
    """Open finished shards.

    Args:
        check_present: look at once whether every shard file is there, in full size.

    Raises:
        FolderError: they are incomplete, of another version, or no shards.
    """
    path = Path(path)
    return ShardSet(path, read_shards_manifest(path, check_present=check_present))
