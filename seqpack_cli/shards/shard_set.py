"""The folder that `pack` writes, opened: a sequence of batches, each checked when it is asked for.

`open_shards(path)` reads the manifest and checks names and sizes; a shard is mapped and its offsets
checked when its first batch is asked for, a batch when it is asked for. So nothing that a stranger
put into a shard reaches torch unchecked, and opening costs the same for any size.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.manifest import check_files, read_kept_tokenizer
from seqpack_cli.ranges import to_offsets
from seqpack_cli.reading import MAX_MAPPED_FILES, hash_regular
from seqpack_cli.shards.layouts import (
    Batch,
    check_ids,
    check_offsets,
    tensor_names,
    view_batch,
)
from seqpack_cli.shards.shard_file import map_shard_file
from seqpack_cli.shards.shard_manifest import describe_shard, has_filler, read_shards_manifest
from seqpack_cli.shards.soundness import find_unsound


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

    def with_tensors(self, tensors: dict[str, np.ndarray]) -> Shard:
        """Give this shard with other arrays, whose offsets are not checked."""
        other = copy.copy(self)
        other.tensors = tensors
        other._viewed = None
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
        self._open = functools.lru_cache(MAX_MAPPED_FILES)(self._map_shard)

    def __len__(self) -> int:
        return int(self.batch_offsets[-1])

    def __getitem__(self, index: int) -> Batch:
        number, inside = self.find(index)
        return self.open_shard(number)[inside]

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))

    @property
    def num_shards(self) -> int:
        """Count the shard files."""
        return len(self.manifest["shards"])

    def find(self, index: int) -> tuple[int, int]:
        """Give the shard of a batch, and the batch's number inside it."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        number = int(np.searchsorted(self.batch_offsets, index, "right")) - 1
        return number, index - int(self.batch_offsets[number])

    def open_shard(self, number: int) -> Shard:
        """Map one shard, checked; those used last stay open.

        Raises:
            FolderError: it is missing, of another size, or its arrays do not belong together.
        """
        return self._open(number)

    def _map_shard(self, number: int) -> Shard:
        entry = self.manifest["shards"][number]
        return Shard(self.path / entry["name"], entry, self.manifest)

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
