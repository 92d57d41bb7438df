"""What every export format gets: the opened source, the output, and shared steps of the work."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

import numpy as np

from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files.manifest import find_format
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, parse_place
from seqpack_cli.ranges import find_difference
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.exports.source import SequenceSource, Source, StoreSource
from seqpack_cli.shards.shard_manifest import FORMAT as SHARDS_FORMAT
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.split_manifest import FORMAT as SPLITS_FORMAT
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore, open_store


@dataclass(frozen=True)
class Task:
    """One export."""

    opened: TokenStore | ShardSet
    output: AnyPath
    overwrite: bool
    eos: int | None
    progress: Progress = field(default_factory=Progress)

    @property
    def source(self) -> Source:
        """The whole sequences to export."""
        opened = self.opened
        return StoreSource(opened) if isinstance(opened, TokenStore) else SequenceSource(opened)

    def begin(self, num_tokens: int) -> None:
        """Report the size of the work, in bytes of ids."""
        self.progress.on_total(num_tokens * self._id_bytes)

    def advance(self, num_ids: int, *, is_second: bool) -> None:
        """Report ids as written, or as read back and compared: half of the work each."""
        num_bytes = num_ids * self._id_bytes
        half = num_bytes // 2
        self.progress.tell(num_bytes - half if is_second else half, num_ids * is_second)

    def tell_lost_columns(self, format_name: str) -> None:
        """Say which columns a format does not have."""
        if TARGETS in self.opened.columns:
            self.progress.on_notice(f"{format_name} has no targets: every token will be trained")
        others = [name for name in self.opened.columns if name != TARGETS]
        if others:
            self.progress.on_notice(f"{format_name} has no columns: left out {', '.join(others)}")

    @property
    def _id_bytes(self) -> int:
        return int(np.dtype(self.opened.manifest["dtype"]).itemsize)


def open_exported(path: AnyPath) -> TokenStore | ShardSet:
    """Open a token store or shards.

    Raises:
        FolderError: the folder holds neither, or is incomplete or damaged.
        OptionError: the shards hold pairs.
    """
    place = parse_place(path)
    if find_format(place) not in (SHARDS_FORMAT, SPLITS_FORMAT):  # splits: an error says so
        return open_store(place)
    shards = open_shards(place)
    if shards.decoder is not None:
        raise OptionError(
            f"{place}: holds pairs, expected single sequences",
            hint=f"seqpack unpack {shlex.quote(str(place))} --format parquet -o FILE writes both "
            "sides, or export the token stores",
        )
    return shards


def check_same(output: object, source: Place, found: np.ndarray, expected: np.ndarray) -> None:
    """Raise MachineError unless what was read back equals the source."""
    if len(found) != len(expected) or find_difference(found, expected) != len(expected):
        raise differing_error(output, source)


def differing_error(output: object, source: Place) -> MachineError:
    """Return the error about a file that differs from what was written to it."""
    return MachineError(
        f"{output}: what was read back differs from {source}",
        hint="run the same command again; if it fails again, check the disk",
    )


def repeated_error(source: Place, sequence: int) -> FolderError:
    """Return the error about a sequence that repeats more tokens than it has."""
    return FolderError(
        f"{source}: sequence {sequence}: column 'overlap' is not less than its number of tokens"
    )
