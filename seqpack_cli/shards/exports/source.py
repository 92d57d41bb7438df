"""What is exported, as blocks of whole sequences: a token store, or shards in the original order.

A block is flat numpy arrays: of a store they are views of its files, checked against the manifest's
checksums when they are first read. Shards are taken apart as by `unpack`, sequence by sequence,
which takes 7 us for each and each reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.places import Place, at
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.unpacked import UnpackedSequence, iter_unpacked
from seqpack_cli.tokens.columns import OVERLAP, TARGETS, Column
from seqpack_cli.tokens.store import TokenStore

CHANGED_HINT = "the file was changed or damaged: run the command that wrote it with --overwrite"


@dataclass(frozen=True)
class Block:
    """Some consecutive sequences."""

    ids: np.ndarray  # [S]
    lengths: np.ndarray  # int64[N]
    documents: np.ndarray  # int64[N], the document of each sequence, rising
    columns: Mapping[str, Any] = field(default_factory=dict)  # N or S values: Values, or a list

    @property
    def offsets(self) -> np.ndarray:
        """Where each sequence begins, and the end of the last one, int64[N + 1]."""
        return to_offsets(self.lengths)

    @property
    def targets(self) -> np.ndarray | None:
        """Which ids are targets, uint8[S]; None if all are."""
        found = self.columns.get(TARGETS)
        return None if found is None else np.asarray(found, np.uint8)

    @property
    def overlaps(self) -> np.ndarray | None:
        """With how many tokens each sequence repeats the one before, int64[N]; None if none."""
        found = self.columns.get(OVERLAP)
        return None if found is None else np.asarray(found, np.int64)


class Source(Protocol):
    """A token store or shards."""

    @property
    def path(self) -> Place:
        """The folder."""

    @property
    def digest(self) -> str:
        """The checksum of its manifest."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Its manifest."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name."""

    @property
    def num_tokens(self) -> int:
        """The number of ids in all blocks."""

    @property
    def num_documents(self) -> int | None:
        """The number of documents, including empty ones; None if each sequence is one."""

    def iter_blocks(self, *, check: bool = False) -> Iterator[Block]:
        """Yield all blocks; several calls yield the same ones.

        Args:
            check: compare every file with its checksum before it is read; without it, notice after
                a file was read that it has changed since that comparison.

        Raises:
            FolderError: a file is damaged, or was changed.
        """


class StoreSource:
    """The sequences of a token store."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self.path, self.digest, self.manifest = store.path, store.digest, store.manifest
        self.columns, self.num_tokens = store.columns, store.num_tokens
        counts = map(store.count_sequences, range(store.num_parts))
        is_one_to_one = all((each == 1).all() for each in counts)
        self.num_documents = None if is_one_to_one else store.num_documents
        self._files = CheckedFiles()

    def iter_blocks(self, *, check: bool = False) -> Iterator[Block]:
        """Yield all blocks, none of which has sequences of two parts."""
        for number, part in enumerate(self.manifest["parts"]):
            if check:
                self._files.check(self.path, part["files"])
            yield from self._iter_part(number)
            if not check:
                self._files.check_again(self.path, part["files"])
            self._store.let_pages_go()

    def _iter_part(self, number: int) -> Iterator[Block]:
        ids, _ = self._store.view_part(number)
        lengths = self._store.part_lengths(number).astype(np.int64)
        documents, offsets = self._store.number_documents(number), to_offsets(lengths)
        part = self.manifest["parts"][number]
        _check_num_tokens(self.path / f"{part['name']}.idx", int(offsets[-1]), part["num_tokens"])
        first, most = 0, LIMITS.ids_per_export
        while first < len(lengths):
            last = int(np.searchsorted(offsets, offsets[first] + most, "right")) - 1
            last = min(max(last, first + 1), first + LIMITS.sequences_per_block)
            rows, cells = slice(first, last), slice(int(offsets[first]), int(offsets[last]))
            columns = self._read_columns(number, rows, cells)
            yield Block(ids[cells], lengths[rows], documents[rows], columns)
            first = last

    def _read_columns(self, number: int, rows: slice, cells: slice) -> dict[str, Any]:
        if not self.columns:
            return {}
        store = self._store
        places = {True: cells, False: rows}
        return {
            name: store.finish_values(
                number, name, store.view_column(number, name)[places[column.is_per_token]]
            )
            for name, column in self.columns.items()
        }


class SequenceSource:
    """The sequences of shards in the order of their token stores; each counts as a document."""

    num_documents = None

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self.path, self.digest, self.manifest = shards.path, shards.folder.digest, shards.manifest
        self.columns: Mapping[str, Column] = shards.columns
        self.num_tokens = _count_tokens(shards)
        self._files = CheckedFiles()

    def iter_blocks(self, *, check: bool = False) -> Iterator[Block]:
        """Yield all blocks."""
        entries = self.manifest["shards"]
        if check:
            self._files.check(self.path, entries)
        first = num_ids = num_done = 0
        waiting = list[UnpackedSequence]()
        most, most_ids = LIMITS.sequences_per_block, LIMITS.ids_per_export
        for sequence in iter_unpacked(self._shards, self.columns, Progress()):
            is_full = len(waiting) == most
            if waiting and (is_full or num_ids + len(sequence.ids) > most_ids):
                yield self._join(waiting, first)
                first, num_done = first + len(waiting), num_done + num_ids
                num_ids, waiting = 0, []
            waiting.append(sequence)
            num_ids += len(sequence.ids)
        if waiting:
            yield self._join(waiting, first)
        _check_num_tokens(self.path, num_done + num_ids, self.num_tokens)
        if not check:
            self._files.check_again(self.path, entries)

    def _join(self, sequences: list[UnpackedSequence], first: int) -> Block:
        values: dict[str, list[Any]] = {
            name: [sequence.columns[name] for sequence in sequences] for name in self.columns
        }
        return Block(
            np.concatenate([sequence.ids for sequence in sequences]),
            np.array([len(sequence.ids) for sequence in sequences]),
            np.arange(first, first + len(sequences)),
            {
                name: list(chain.from_iterable(each)) if self.columns[name].is_per_token else each
                for name, each in values.items()
            },
        )


class CheckedFiles:
    """Compares files with their checksums, and notices later that one has changed since."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[int, ...] | None] = {}

    def check(self, folder: Place, entries: Sequence[Mapping[str, Any]]) -> None:
        """Compare files of a folder with their entries in a manifest.

        Raises:
            FolderError: one is missing or damaged.
        """
        for entry in entries:
            path = folder / entry["name"]
            self._known[path] = at(path).find_status()
            check_file(path, entry)

    def check_again(self, folder: Place, entries: Sequence[Mapping[str, Any]]) -> None:
        """Compare those files again that were written or replaced since `check`."""
        for entry in entries:
            path = folder / entry["name"]
            if at(path).find_status() != self._known.get(path):
                check_file(path, entry)


def _check_num_tokens(path: Place, found: int, expected: int) -> None:
    """Raise FolderError unless sequences have the tokens that a manifest says."""
    if found != expected:
        what = f"{found:,} tokens in its sequences, manifest says {expected:,}"
        raise FolderError(f"{path}: {what}", hint=CHANGED_HINT)


def _count_tokens(shards: ShardSet) -> int:
    """Count the tokens of all sequences once; the ledger counts visits that `pack` dropped too."""
    ledger: Mapping[str, int] = shards.manifest["ledger"]
    if not ledger["num_repeated_tokens"]:
        return ledger["num_tokens"]
    opened = [shards.open_shard(number) for number in range(shards.num_shards)]
    indices = np.concatenate([each.tensors["original_indices"] for each in opened])
    ends = np.concatenate([each.arrays.piece_starts + each.tensors["lengths"] for each in opened])
    order = np.lexsort((ends, indices))  # filler rows have index -1 and end at 0
    return int(ends[order][np.diff(indices[order], append=-1) != 0].sum())


def check_file(path: Place, entry: Mapping[str, Any]) -> None:
    """Compare a file with its entry in a manifest.

    Raises:
        FolderError: it is missing or damaged.
    """
    with at(path).open_copy(dict(entry)) as file:
        found = at(file).hash()
    if found != entry["blake3"]:
        raise FolderError(
            f"{path}: blake3 differs from the manifest's",
            hint=CHANGED_HINT,
        )
