"""Open the folder that `pack` writes, as a sequence of batches.

`open_shards(path)` reads the manifest and checks names and sizes, which takes the same time for any
size. A shard is mapped, and its offsets are checked, when its first batch is read; a batch is
checked when it is read. So no data of a manipulated shard reaches torch unchecked.
"""

from __future__ import annotations

import bisect
import copy
import functools
import math
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any, SupportsIndex, overload

import numpy as np
from blake3 import blake3

from seqpack_cli.batching.options import ENCODER, PackOptions, ResolvedOptions
from seqpack_cli.errors import SeqpackError
from seqpack_cli.files.manifest import MANIFEST_NAME, OpenedFolder, read_kept_tokenizer
from seqpack_cli.files.mapping import keep_mapped
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, find_place, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.read_pages import ReadPages
from seqpack_cli.shards.recorded_options import read_options
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_manifest import read_shards_manifest
from seqpack_cli.shards.sides import find_side, own_options, view_decoder
from seqpack_cli.tokens.columns import Column, read_columns
from seqpack_cli.tokens.store import number_repeated

BYTES_PER_ARRAY = 1 << 16  # reading an entry of a mapped array maps 64 KiB around it
BYTES_PER_ITEM = 7 * BYTES_PER_ARRAY  # of the ids and offsets of a batch


class ShardSet:
    """The batches of all shards; `shards[i]` is one, checked, as views of the disk.

    An index may be negative; a slice is a list. Of pairs these are the encoder's sides, and
    `decoder` is the shard set of the other sides, whose batches hold the same documents.
    """

    def __init__(self, path: Place, manifest: dict[str, Any], digest: str) -> None:
        self.folder = OpenedFolder(path, digest)
        self.manifest = manifest
        self.side = find_side(manifest)
        self.decoder: ShardSet | None = None
        if self.side == ENCODER:
            self.decoder = ShardSet(path, view_decoder(manifest), digest)
        self.layout: str = manifest["layout"]
        self._stored_columns = read_columns(manifest, path / MANIFEST_NAME)
        entries = manifest["shards"]
        counts = [entry["num_batches"] for entry in entries]
        self.batch_offsets = to_offsets(counts)
        self._starts: list[int] = self.batch_offsets.tolist()  # bisect is faster on a list
        self._set_columns(self._stored_columns)
        self._max_mapped = LIMITS.mapped_files
        self._pages = ReadPages()
        self._opened: dict[int, Shard] = {}
        share_limits(self.sides)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getstate__(self) -> dict[str, Any]:
        # a copy maps the files again
        return {**self.__dict__, "_opened": {}, "_pages": ReadPages()}

    @property
    def path(self) -> Place:
        """The folder."""
        return self.folder.path

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

    def with_columns(self, names: Collection[str]) -> ShardSet:
        """Return the same shards, whose batches have only some columns; others are not read."""
        other = copy.copy(self)
        found = {name: column for name, column in self.columns.items() if name in names}
        other._set_columns(self.columns if len(found) == len(self.columns) else found)
        return other

    def _set_columns(self, columns: dict[str, Column]) -> None:
        self.columns = columns
        # what `take` counts for each batch
        dtypes = [dtype for each in columns.values() for dtype in each.tensor_dtypes.values()]
        of_tokens = [each.dtype for each in columns.values() if each.is_per_token]
        self._texts = [name for name, each in columns.items() if each.is_text]
        self._bytes_per_item = BYTES_PER_ITEM + BYTES_PER_ARRAY * len(dtypes)
        dtypes = [self.manifest["dtype"], *of_tokens]
        self._bytes_per_cell = sum(np.dtype(dtype).itemsize for dtype in dtypes)

    def take(self, index: SupportsIndex, *, bytes_kept: int | None = None) -> Batch:
        """Return a batch, checked; faster than `shards[index]` for many batches: see `Shard.take`.

        Args:
            bytes_kept: after about this many bytes were read, their pages are released from this
                process; they stay in the system's cache. None is `LIMITS.mapped_bytes`.
        """
        number, inside = self.find(index)
        pages = self._pages
        if pages.num_bytes > (LIMITS.mapped_bytes if bytes_kept is None else bytes_kept):
            pages.release()
        shard = self.open_shard(number)
        batch = shard.take(inside)
        pages.num_bytes += batch.data.size * self._bytes_per_cell + self._bytes_per_item
        for name in self._texts:
            pages.num_bytes += batch.columns[name].nbytes
        pages.shards.add(shard)
        return batch

    @functools.cached_property
    def options(self) -> ResolvedOptions:
        """The options that these shards were packed with."""
        return read_options(self.manifest, self.path / MANIFEST_NAME)

    @property
    def sides(self) -> list[ShardSet]:
        """The shard set of each side: this one, and the decoder's if there is one."""
        return [self] if self.decoder is None else [self, self.decoder]

    @functools.cached_property
    def own_options(self) -> PackOptions:
        """The options as they choose the columns of this side."""
        return own_options(self.manifest, self.options)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A checksum over all shards: the same for the same batches in any folder."""
        digests = [entry["blake3"] for entry in self.manifest["shards"]]
        return blake3("".join(digests).encode(errors="backslashreplace")).hexdigest()

    @property
    def num_shards(self) -> int:
        """The number of shard files."""
        return len(self.manifest["shards"])

    @property
    def num_store_sequences(self) -> int:
        """The number of sequences in all token stores."""
        return sum(entry["num_sequences"] for entry in self.manifest["stores"])

    @property
    def max_visits(self) -> list[int]:
        """How often a sequence of each token store may occur."""
        return [math.ceil(Fraction(entry["passes"])) for entry in self.manifest["stores"]]

    def find(self, index: SupportsIndex) -> tuple[int, int]:
        """Return the number of a batch's shard, and the batch's number in that shard."""
        index = find_index(index, len(self), "batch")
        number = bisect.bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def find_name(self, index: SupportsIndex) -> str:
        """Return the file name of a batch's shard."""
        return self.open_shard(self.find(index)[0]).path.name

    def open_shard(self, number: int) -> Shard:
        """Map one shard and check its offsets; the shards opened last stay mapped.

        Raises:
            FolderError: it is missing or damaged, or the shards were replaced since they were
                opened.
        """
        return keep_mapped(self._opened, number, self._map_shard, max_kept=self._max_mapped)

    def _map_shard(self, number: int) -> Shard:
        entry = self.manifest["shards"][number]
        path, first_batch = self.path / entry["name"], self._starts[number]
        with self.folder.while_same():
            columns = self._stored_columns
            shard = Shard(path, entry, self.manifest, columns=columns, first_batch=first_batch)
        return shard if self.columns is columns else shard.with_columns(self.columns)

    def find_stores(self) -> list[Place | None]:
        """Return each token store's folder, None if it is no longer at the path in the manifest."""
        return [self._find_place(entry["path"]) for entry in self.manifest["stores"]]

    @property
    def store_names(self) -> list[str]:
        """The names of the token stores: see `name_stores`."""
        paths = (entry["path"] for entry in self.manifest["stores"])
        return number_repeated([path.rstrip("/").rpartition("/")[2] for path in paths])

    def _find_place(self, spelled: str) -> Place | None:
        try:
            path = find_place(self.path, spelled)
            return path if path.is_dir() else None
        except (OSError, ValueError, RuntimeError, SeqpackError):  # impossible names, link loops
            return None

    def read_tokenizer_json(self) -> bytes:
        """Read the tokenizer.json in the folder and check it against the manifest."""
        return read_kept_tokenizer(self.path, self.manifest)


def share_limits(sets: Sequence[ShardSet]) -> None:
    """Let several shard sets map as many files, and keep as many pages, together as one alone."""
    for shards in sets:
        shards._pages = sets[0]._pages
        shards._max_mapped = LIMITS.mapped_files // len(sets)


@checks_arguments
def open_shards(path: AnyPath, *, check_present: bool = True) -> ShardSet:
    """Open finished shards; batches are read and checked when they are asked for.

    Args:
        path: the shards' folder.
        check_present: check now that every shard file exists in full size.

    Raises:
        FolderError: they are incomplete, of another version, or not shards.
    """
    path = parse_place(path)
    manifest, digest = read_shards_manifest(path, check_present=check_present)
    return ShardSet(path, manifest, digest)
