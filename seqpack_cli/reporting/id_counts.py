"""Count how often each id occurs in a token store or in shards, and find examples of some.

One pass over the mapped files in blocks that fit the cache with their counts, 200 to 450 M ids/s;
counted pages are released. Only a part or shard that holds a wanted id is searched for it, and only
until there are enough examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.limits import LIMITS
from seqpack_cli.reporting.opened import AnyOpened
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.layouts import is_in_range
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore

LEAST_TABLE_ID = 1 << 16  # below this a table costs nothing
MAX_EXAMPLES = 5
IDS_AROUND = 8  # kept on each side of an example

IsWanted = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Example:
    """The first occurrence of a wanted id in a sequence, or in a row of a shard."""

    id: int
    sequence: int  # index in the token store
    position: int  # in the sequence, from 0
    ids_around: np.ndarray


@dataclass
class IdCounts:
    """The result of one pass over all ids; padding is not counted."""

    counts: np.ndarray  # int64, for each id of the vocabulary
    num_tokens: int = 0
    unknown: list[Example] = field(default_factory=list)
    missing: list[Example] = field(default_factory=list)  # ids that the vocabulary lacks


def count_ids(
    opened: AnyOpened, ids: np.ndarray, *, unk_id: int | None, progress: Progress
) -> IdCounts:
    """Count every id of a token store or of shards.

    Args:
        ids: int64, the ids of the vocabulary, sorted.
        unk_id: the unknown token; examples of it and of ids that are not in `ids` are returned.
        progress: is told of ids and padding cells.

    Raises:
        FolderError: an id is not from 0 to the manifest's largest, or a padding cell is not the
            padding id.
    """
    max_id = opened.manifest["max_id"]
    progress.on_total(_count_cells(opened))
    found = IdCounts(np.zeros(len(ids), np.int64))
    for run in _iter_shards(opened) if isinstance(opened, ShardSet) else _iter_parts(opened):
        counts, num_tokens = _count_known(run, ids, max_id, progress)
        found.counts += counts
        found.num_tokens += num_tokens
        if counts[ids == unk_id].any():
            _add_examples(found.unknown, _search(run, lambda some: some == unk_id))
        if counts.sum() < num_tokens:
            _add_examples(found.missing, _search(run, lambda some: ~np.isin(some, ids)))
        let_pages_go(run.ids)
    return found


class _PartRun:
    """The ids of one part of a token store, sequence by sequence."""

    def __init__(self, store: TokenStore, number: int) -> None:
        self.ids, self._starts = store.view_part(number)
        folder, self._first_of_all = store.folder_of(number), int(store.part_offsets[number])
        self.name = f"{folder.path / store.parts[number]['name']}.bin: sequence"
        self.first = self._first_of_all - folder.first_sequence
        self._lengths = store.part_lengths(number)

    def iter_tokens(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all ids in blocks, each with the number of cells that it comes from."""
        return ((len(block), block) for _, block in _iter_blocks(self.ids))

    def find(self, cells: np.ndarray) -> np.ndarray:
        """Return the sequence of each id, from 0 in this part."""
        return np.searchsorted(self._starts, cells * self.ids.itemsize, "right") - 1

    def take_examples(self, sequence: int, cell: int, is_wanted: IsWanted) -> Iterator[Example]:
        """Yield the example of a sequence whose first wanted id is at this cell."""
        del is_wanted
        begin = int(self._starts[sequence]) // self.ids.itemsize
        ids = self.ids[begin : begin + int(self._lengths[sequence])]
        yield _make_example(ids, cell - begin, self._first_of_all + sequence)


class _ShardRun:
    """The ids and the padding of one shard, batch by batch."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.ids = shard.tensors["data"]
        self.first = 0
        self.name = f"{shard.path}: batch"

    def iter_tokens(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all ids in blocks, each with the number of cells that it comes from."""
        if int(self._shard.tensors["lengths"].sum()) != len(self.ids):
            return self._iter_unpadded()
        return ((len(block), block) for _, block in _iter_blocks(self.ids))

    def _iter_unpadded(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the ids of blocks of whole batches; raise FolderError if padding is another id.

        Padding is masked rather than counted and subtracted: long runs of one id are slow to count.
        """
        shard, offsets = self._shard, self._shard.tensors["data_offsets"]
        shard.check_all(cells=False)
        first = 0
        while first < len(shard):
            most = offsets[first] + LIMITS.entries_per_block
            last = max(int(np.searchsorted(offsets, most, "right")) - 1, first + 1)
            cells = self.ids[offsets[first] : offsets[last]]
            mask = shard.arrays.cut(first, last).mask_tokens()
            wrong = np.flatnonzero(~mask & (cells != shard.pad_id))
            if len(wrong):
                shard.check(int(self.find(offsets[first] + wrong[:1])[0]))
            yield len(cells), cells[mask]
            first = last

    def find(self, cells: np.ndarray) -> np.ndarray:
        """Return the batch of each cell, from 0 in this shard."""
        return np.searchsorted(self._shard.tensors["data_offsets"], cells, "right") - 1

    def take_examples(self, batch: int, cell: int, is_wanted: IsWanted) -> Iterator[Example]:
        """Yield the first wanted id of each row of a batch that has one."""
        del cell
        taken = self._shard[batch]
        assert taken.original_indices is not None  # noqa: S101 - shards always have them
        for row, ids in enumerate(taken.rows()):
            places = np.flatnonzero(is_wanted(ids))
            if len(places):
                example = _make_example(ids, int(places[0]), int(taken.original_indices[row]))
                before = 0 if taken.piece_starts is None else int(taken.piece_starts[row])
                yield replace(example, position=example.position + before)


_Run = _PartRun | _ShardRun


def _count_cells(opened: AnyOpened) -> int:
    if not isinstance(opened, ShardSet):
        return opened.num_tokens
    ledger = opened.manifest["ledger"]
    return int(ledger["num_tokens"] + ledger["num_padding_cells"])


def _iter_parts(store: TokenStore) -> Iterator[_PartRun]:
    for number in range(store.num_parts):
        yield _PartRun(store, number)
        store.let_pages_go()


def _iter_shards(shards: ShardSet) -> Iterator[_ShardRun]:
    return (_ShardRun(shards.open_shard(number)) for number in range(shards.num_shards))


def _search(run: _Run, is_wanted: IsWanted) -> Iterator[Example]:
    """Yield the first wanted id of each sequence, or row, that has one."""
    last = -1
    for start, block in _iter_blocks(run.ids):
        cells = np.flatnonzero(is_wanted(block)) + start
        found, firsts = np.unique(run.find(cells), return_index=True)
        for inside, cell in zip(found.tolist(), cells[firsts].tolist(), strict=True):
            if inside != last:
                yield from run.take_examples(inside, cell, is_wanted)
            last = inside


def _make_example(ids: np.ndarray, position: int, sequence: int) -> Example:
    around = ids[max(position - IDS_AROUND, 0) : position + IDS_AROUND + 1].copy()
    return Example(int(ids[position]), sequence, position, around)


def _add_examples(examples: list[Example], more: Iterator[Example]) -> None:
    """Add examples of other places until there are enough; shards may visit a sequence again."""
    seen = {(example.sequence, example.position) for example in examples}
    while len(examples) < MAX_EXAMPLES and (example := next(more, None)) is not None:
        place = example.sequence, example.position
        if place not in seen:
            seen.add(place)
            examples.append(example)


def _count_known(
    run: _Run, ids: np.ndarray, max_id: int, progress: Progress
) -> tuple[np.ndarray, int]:
    """Count the ids of a vocabulary, int64[ids], and all tokens of a part or shard."""
    # A table pays only for many ids: it costs the same for each of many small parts.
    has_table = max_id <= min(LIMITS.table_ids, max(len(run.ids), LEAST_TABLE_ID))
    counts = np.zeros(max_id + 1 if has_table else len(ids) + 1, np.int64)
    ids_and_none = np.append(ids, -1)
    num_tokens = num_mapped = 0
    for num_cells, tokens in run.iter_tokens():
        if not is_in_range(tokens, max_id):
            _refuse(run, max_id)
        num_tokens += len(tokens)
        if not has_table:
            places = np.searchsorted(ids, tokens)
            tokens = np.where(ids_and_none[places] == tokens, places, len(ids))
        counts += np.bincount(tokens, minlength=len(counts))
        progress.on_advance(num_cells)
        num_mapped += num_cells
        if num_mapped >= LIMITS.mapped_ids:
            let_pages_go(run.ids)
            num_mapped = 0
    return counts[ids] if has_table else counts[:-1], num_tokens


def _refuse(run: _Run, max_id: int) -> None:
    """Raise FolderError for the first id that is out of range."""
    for start, block in _iter_blocks(run.ids):
        for cell in np.flatnonzero((block < 0) | (block > max_id))[:1].tolist():
            place = run.first + int(run.find(np.array([start + cell]))[0])
            raise FolderError(
                f"{run.name} {place:,}: id {block[cell]}, expected ids from 0 to {max_id}"
            )


def _iter_blocks(ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    size = LIMITS.entries_per_block
    for start in range(0, len(ids), size):
        yield start, ids[start : start + size]
