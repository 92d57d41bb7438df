"""Open the folder that `pack` writes, as a sequence of batches, and the stores it was packed from.

`open_shards(path)` reads the manifest and checks names and sizes, which takes the same time for any
size. A shard is mapped, and its offsets are checked, when its first batch is read; a batch is
checked when it is read. So no data of a manipulated shard reaches torch unchecked.
"""

from __future__ import annotations

import bisect
import copy
import functools
import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, SupportsIndex

from blake3 import blake3

from seqpack_cli.batching.options import PackOptions, ResolvedOptions
from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.files.json_files import MAX_JSON_BYTES
from seqpack_cli.files.manifest import (
    FORMAT_OF_SHARDS,
    FORMAT_OF_SPLITS,
    MANIFEST_NAME,
    OpenedFolder,
    find_format,
    read_kept_tokenizer,
)
from seqpack_cli.files.mapping import keep_mapped, let_pages_go
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, at, find_place, parse_place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.manifest import (
    PREFIX,
    find_side,
    own_options,
    read_shards_manifest,
    view_sides,
)
from seqpack_cli.shards.shard import Batches, Shard
from seqpack_cli.tokens.columns import read_columns
from seqpack_cli.tokens.store import (
    TokenStore,
    choose_columns,
    number_repeated,
    open_store,
    open_stores,
)

BYTES_PER_ARRAY = 1 << 16  # reading an entry of a mapped array maps 64 KiB around it
BYTES_PER_ITEM = 7 * BYTES_PER_ARRAY  # of the ids and offsets of a batch


class ShardSet(Batches):
    """The batches of all shards; `shards[i]` is one, checked, as views of the disk.

    An index may be negative; a slice is a list. Of pairs these are the encoder's batches, and
    `sides` are the shard sets of both sides, whose batches hold the same documents.
    """

    def __init__(
        self, path: Place, manifest: dict[str, Any], digest: str, options: ResolvedOptions
    ) -> None:
        self.folder = OpenedFolder(path, digest)
        self.manifest = manifest
        self.options = options  # that these shards were packed with
        self.side = find_side(manifest)  # encoder of pairs too
        views = view_sides(manifest)
        self.sides = [self]
        if len(views) > 1:
            self.sides = [ShardSet(path, view, digest, options) for view in views]
        self.layout: str = manifest["layout"]
        self._stored_columns = read_columns(manifest, path / MANIFEST_NAME)
        self.batch_offsets = to_offsets([entry["num_batches"] for entry in manifest["shards"]])
        self._starts: list[int] = self.batch_offsets.tolist()  # bisect is faster on a list
        self.columns = self._stored_columns
        self._opened: dict[int, Shard] = {}
        self._read = set[Shard]()  # since their pages were released
        self._num_read = 0  # bytes
        self._num_sharing = 1  # shard sets that have the limits of one
        share_limits(self.sides)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getstate__(self) -> dict[str, Any]:
        # a copy maps the files again
        return {**self.__dict__, "_opened": {}, "_read": set(), "_num_read": 0}

    @property
    def path(self) -> Place:
        """The folder."""
        return self.folder.path

    @property
    def decoder(self) -> ShardSet | None:
        """The decoder's side of pairs."""
        return self.sides[1] if len(self.sides) > 1 else None

    def __repr__(self) -> str:
        sizes = f"layout={self.layout!r}, num_batches={len(self)}, num_shards={self.num_shards}"
        return f"ShardSet({str(self.path)!r}, {sizes})"

    def with_columns(self, names: Collection[str]) -> ShardSet:
        """Return the same shards, whose batches have only some columns; others are not read.

        Args:
            names: of pairs those of the decoder's side begin with PREFIX.
        """
        other = copy.copy(self)
        found = {name: column for name, column in self.columns.items() if name in names}
        other.columns, other.sides = found, [other]
        if self.decoder is not None:
            of_decoder = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
            other.sides = [self.sides[0].with_columns(names), self.decoder.with_columns(of_decoder)]
        return other

    def take(self, index: SupportsIndex, *, bytes_kept: int | None = None) -> Batch:
        """Return a batch, checked.

        Args:
            bytes_kept: after about this many bytes were read, their pages are released from this
                process; they stay in the system's cache. None is `LIMITS.mapped_bytes`.
        """
        number, inside = self.find(index)
        most = LIMITS.mapped_bytes if bytes_kept is None else bytes_kept
        if self._num_read > most // self._num_sharing:
            self._num_read, read, self._read = 0, self._read, set()
            for each in tuple(read):  # copied in one step: other threads may still add some
                let_pages_go(each.tensors["data"])
        shard = self.open_shard(number)
        batch = shard.take(inside)
        self._num_read += batch.data.nbytes + BYTES_PER_ITEM
        for values in batch.columns.values():
            self._num_read += values.nbytes + BYTES_PER_ARRAY
        self._read.add(shard)
        return batch

    @property
    def own_options(self) -> PackOptions:
        """The options as they choose the columns of this side."""
        return own_options(self.options, self.side)

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
    def max_visits(self) -> int:
        """How often a sequence may occur."""
        return max(math.ceil(Fraction(entry["passes"])) for entry in self.manifest["stores"])

    def find(self, index: SupportsIndex) -> tuple[int, int]:
        """Return the number of a batch's shard, and the batch's number in that shard."""
        index = find_index(index, len(self), "batch")
        number = bisect.bisect_right(self._starts, index) - 1
        return number, index - self._starts[number]

    def find_name(self, index: SupportsIndex) -> str:
        """Return the file name of a batch's shard."""
        name: str = self.manifest["shards"][self.find(index)[0]]["name"]
        return name

    def open_shard(self, number: int) -> Shard:
        """Map one shard and check its offsets; the shards opened last stay mapped.

        Raises:
            FolderError: it is missing or damaged, or the shards were replaced since they were
                opened.
        """
        most = LIMITS.mapped_files // self._num_sharing
        return keep_mapped(self._opened, number, self._map_shard, max_kept=most)

    def _map_shard(self, number: int) -> Shard:
        entry = self.manifest["shards"][number]
        path, first_batch = self.path / entry["name"], self._starts[number]
        with self.folder.while_same():
            columns = self._stored_columns
            shard = Shard(path, entry, self.manifest, columns=columns, first_batch=first_batch)
        return shard.with_tensors(shard.tensors, self.columns)

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
        shards._num_sharing = len(sets)


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
    return ShardSet(path, *read_shards_manifest(path, check_present=check_present))


def open_any(path: AnyPath) -> TokenStore | ShardSet:
    """Open a token store or shards, whichever the folder holds.

    Raises:
        FolderError: it is neither, incomplete or damaged; of splits the error says so.
    """
    place = parse_place(path)
    is_packed = find_format(place) in (FORMAT_OF_SHARDS, FORMAT_OF_SPLITS)
    return open_shards(place) if is_packed else open_store(place)


# The token stores that shards were packed from


def share_places(shards: ShardSet, places: Sequence[Place]) -> list[list[Place]]:
    """Return for each side of shards which of some stores are its own; a store may be of both.

    Raises:
        FolderError: one is not a token store, or not one of those that were packed.
    """
    found = {place: _hash_manifest(place) for place in places}
    known = [{entry["blake3"] for entry in side.manifest["stores"]} for side in shards.sides]
    for place, digest in found.items():
        if digest not in set.union(*known):
            raise _other_store(place)
    return [[place for place in found if found[place] in digests] for digests in known]


def locate_stores(shards: ShardSet, places: Sequence[Place] = ()) -> list[Place]:
    """Return where the stores of shards are; of pairs, those of one side.

    Args:
        places: where some or all of them are, in any order: see `share_places`; the others are
            looked for where the manifest says.

    Raises:
        FolderError: a store is missing, or not one of those that were packed.
    """
    given = {_hash_manifest(place): place for place in places}
    found = list[Place]()
    for entry, recorded in zip(shards.manifest["stores"], shards.find_stores(), strict=True):
        place = given.get(entry["blake3"], recorded)
        if place is None:
            whose = "its" if shards.side is None else f"the {shards.side}'s"
            raise FolderError(
                f"{shards.path}: {whose} token store is not at {entry['path'][:200]}",
                hint="pass --tokens STORE, or --level structure, which needs no store",
            )
        if _hash_manifest(place) != entry["blake3"]:
            raise _other_store(place)
        found.append(place)
    return found


def open_packed_stores(
    shards: ShardSet, places: Sequence[Place] = (), *, check_indices: bool = True
) -> TokenStore:
    """Open the stores of shards as one, with all columns that they share; of pairs, of one side.

    Args:
        places: see `locate_stores`.
        check_indices: check every index now.

    Raises:
        FolderError: a store is missing, damaged, or not one of those that were packed.
    """
    found, without = locate_stores(shards, places), shards.own_options.drop_column
    return open_stores(found, check_indices=check_indices, without=without)


def show_packed_columns(store: TokenStore, shards: ShardSet) -> TokenStore:
    """Return the stores of shards with the columns that the shards have."""
    options = shards.own_options
    return choose_columns(
        store,
        without=options.drop_column,
        store_column=options.store_column,
        names=shards.store_names,
    )


def _other_store(place: Place) -> FolderError:
    open_stores([place], check_indices=False)  # raises unless it is a token store
    return FolderError(
        f"{place}: not a token store that these shards were packed from",
        hint="pass the right one with --tokens STORE, or pack again",
    )


def _hash_manifest(place: Place) -> str | None:
    """Return the digest of a store's manifest, whatever it holds; None if it cannot be read."""
    try:
        return blake3(at(place / MANIFEST_NAME).read(max_bytes=MAX_JSON_BYTES)).hexdigest()
    except SeqpackError:
        return None
