"""The folder that `pack` writes, opened: a sequence of batches, each checked when it is asked for.

`open_shards(path)` reads the manifest and checks names and sizes; a shard is mapped and its offsets
checked when its first batch is asked for, a batch when it is asked for. So nothing that a stranger
put into a shard reaches torch unchecked, and opening costs the same for any size.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import numpy as np
from blake3 import blake3

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.errors import SeqpackError
from seqpack_cli.files.manifest import MANIFEST_NAME, read_kept_tokenizer
from seqpack_cli.files.mapping import MAX_MAPPED_FILES, keep_mapped, let_pages_go
from seqpack_cli.files.url import AnyPath, Place, find_place, parse_place
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.recorded_options import read_options
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_manifest import read_shards_manifest

BYTES_KEPT = 256 << 20  # of maps, by who takes many batches
BYTES_PER_ITEM = 7 << 16  # a look at each of seven arrays maps 64 KiB around it


class ShardSet:
    """The batches of all shards; `shards[i]` is one, checked, as views of the disk.

    An index may be negative; a slice is a list.
    """

    def __init__(self, path: Place, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.layout: str = manifest["layout"]
        entries = manifest["shards"]
        counts = [entry["num_batches"] for entry in entries]
        self.batch_offsets = to_offsets(counts)
        self._starts: list[int] = self.batch_offsets.tolist()  # found faster than in an array
        self._num_bytes_read = 0
        self._touched: set[Shard] = set()
        self._opened: dict[int, Shard] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        sizes = f"layout={self.layout!r}, num_batches={len(self)}, num_shards={self.num_shards}"
        return f"ShardSet({str(self.path)!r}, {sizes})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number, inside = self.find(index)
        return self.open_shard(number)[inside]

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))

    def take(self, index: SupportsIndex, *, bytes_kept: int = BYTES_KEPT) -> Batch:
        """Give a batch, checked, for who asks for many: see `Shard.take`.

        Args:
            bytes_kept: of maps; when about so much was read it leaves this process's memory, and
                stays in the system's cache.
        """
        number, inside = self.find(index)
        if self._num_bytes_read > bytes_kept:
            self._num_bytes_read = 0
            touched, self._touched = self._touched, set()
            for shard in tuple(touched):  # copied in one step: other threads may still add some
                let_pages_go(shard.tensors["data"])
        shard = self.open_shard(number)
        batch = shard.take(inside)
        self._num_bytes_read += batch.data.nbytes + BYTES_PER_ITEM
        self._touched.add(shard)
        return batch

    def count_cells(self) -> np.ndarray:
        """Count the ids and padding cells of each batch, int64[batches]; maps every shard."""
        shards = (self.open_shard(number) for number in range(self.num_shards))
        return np.concatenate([np.diff(shard.tensors["data_offsets"]) for shard in shards])

    @functools.cached_property
    def options(self) -> PackOptions:
        """Return the options that they were packed with."""
        return read_options(self.manifest, self.path / MANIFEST_NAME)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Give a checksum that is the same for the same batches, wherever they lie."""
        digests = [entry["blake3"] for entry in self.manifest["shards"]]
        return blake3("".join(digests).encode(errors="backslashreplace")).hexdigest()

    @property
    def num_shards(self) -> int:
        """Count the shard files."""
        return len(self.manifest["shards"])

    @property
    def num_store_sequences(self) -> int:
        """Count the sequences of the token store that these are of, as the ledger has it."""
        ledger = self.manifest["ledger"]
        return int(ledger["num_sequences"] + sum(ledger["num_dropped_sequences"].values()))

    def find(self, index: SupportsIndex) -> tuple[int, int]:
        """Give the shard of a batch, and the batch's number inside it."""
        index = find_index(index, len(self), "batch")
        number = bisect.bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def open_shard(self, number: int) -> Shard:
        """Map one shard, checked; those opened last stay mapped.

        Raises:
            FolderError: it is missing, of another size, or its arrays do not belong together.
        """
        return keep_mapped(self._opened, number, self._map_shard, max_kept=MAX_MAPPED_FILES)

    def _map_shard(self, number: int) -> Shard:
        entry = self.manifest["shards"][number]
        path, first_batch = self.path / entry["name"], self._starts[number]
        return Shard(path, entry, self.manifest, first_batch=first_batch)

    def find_store(self) -> Place | None:
        """Give the folder of the token store if there still is one where the manifest says."""
        try:
            path = find_place(self.path, self.manifest["tokens_path"])
            return path if path.is_dir() else None
        except (
            OSError,
            ValueError,
            RuntimeError,
            SeqpackError,
        ):  # what no file system takes, links in a circle
            return None

    def read_tokenizer_json(self) -> bytes:
        """Read the tokenizer.json in the folder, checked against the manifest."""
        return read_kept_tokenizer(self.path, self.manifest)


@checks_arguments
def open_shards(path: AnyPath, *, check_present: bool = True) -> ShardSet:
    """Open finished shards.

    Args:
        check_present: look at once whether every shard file is there, in full size.

    Raises:
        FolderError: they are incomplete, of another version, or no shards.
    """
    path = parse_place(path)
    return ShardSet(path, read_shards_manifest(path, check_present=check_present))
