"""The tasks of a pack run, in a worker: count the lengths of parts, write a shard and its receipt.

A worker opens the same stores as the run, with the same selection of sequences. It finds the rows
of a shard in the stores, lays them out, and reads ids and columns while they are written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.batching.options import (
    DECODER,
    ENCODER,
    LAYOUTS,
    SIDES,
    PackOptions,
    ResolvedOptions,
)
from seqpack_cli.batching.order import LengthsChangedError, sort_within_batches
from seqpack_cli.batching.plan import BatchTable, Plan, ShardRows
from seqpack_cli.batching.rows import INTO_NEXT
from seqpack_cli.batching.selection import SourceCounts
from seqpack_cli.errors import FolderError
from seqpack_cli.files.manifest import SIDE
from seqpack_cli.files.places import Place
from seqpack_cli.files.tensor_file import Tensor, write_tensor_file
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.runs.workers import Workers, advance
from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.layouts import Geometry, is_in_range, iter_pieces
from seqpack_cli.shards.manifest import (
    NUM_TARGETS,
    SHARD_FIELDS,
    count_of_stores,
    describe_shard,
    name_tensors,
    own_options,
    shard_name,
)
from seqpack_cli.shards.selection import Selection, Selector
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows, open_stores, read_values

# Opening the stores of a run


@dataclass(frozen=True)
class SourceSetup:
    """The stores of a run and what of them is packed.

    Args:
        places: of the stores of each side.
        digests: of the stores of each side, which may be replaced while the run works.
        options: resolved, with stores named by position.
        passes: of each store.
    """

    places: tuple[tuple[Place, ...], ...]
    digests: tuple[str, ...]
    options: ResolvedOptions
    passes: tuple[Fraction, ...]

    @classmethod
    def of(cls, source: Selection) -> SourceSetup:
        """Return that of an opened source."""
        places = (tuple(store.path.resolve() for store in side.folders) for side in source.sides)
        digests = (side.digest for side in source.sides)
        return cls(tuple(places), tuple(digests), source.options, source.passes)


@functools.lru_cache(maxsize=1)
def open_source(setup: SourceSetup) -> Selection:
    """Open a source once in a worker; another run or split opens it again.

    Raises:
        FolderError: a store was replaced.
    """
    options = setup.options
    names = SIDES if len(setup.places) > 1 else (None,)
    own = [own_options(options, name) for name in names]
    sides = list(map(_open, setup.places, setup.digests, own))
    return Selector(*sides)(options, setup.passes)


def _open(places: Sequence[Place], digest: str, options: PackOptions) -> TokenStore:
    """Open the stores of one side, whose indices the run has checked."""
    store = open_stores(places, check_indices=False, without=options.drop_column)
    if store.digest != digest:
        raise changed_error(store.shown_path)
    return store


def changed_error(path: str) -> FolderError:
    """Return the error for a store, or shards, that changed during a run."""
    hint = "run the same command again"
    return FolderError(f"{path}: changed since this run began", hint=hint)


# Counting


@dataclass(frozen=True)
class CountTask:
    """The parts of a store whose lengths one task counts."""

    first_part: int
    last_part: int

    def __str__(self) -> str:
        return f"parts {self.first_part} to {self.last_part - 1}"


def count_store(source: Selection, workers: Workers) -> SourceCounts:
    """Check every index of a store and count its lengths, in parallel tasks.

    Raises:
        FolderError: an index is missing or damaged.
    """
    num_parts, size = source.store.num_parts, LIMITS.parts_per_task
    tasks = [CountTask(first, min(first + size, num_parts)) for first in range(0, num_parts, size)]
    count = functools.partial(count_parts, SourceSetup.of(source))
    return SourceCounts.join(list(workers.run(count, tasks)))


def count_parts(opened: SourceSetup, task: CountTask) -> SourceCounts:
    """Check the indices of some parts and count their lengths."""
    source = open_source(opened)
    source.store.check_indices(task.first_part, task.last_part)
    return source.count(task.first_part, task.last_part)


# Writing a shard


@dataclass(frozen=True)
class SetSetup:
    """What a worker needs to make any shard of a shard set."""

    folder: Place
    opened: SourceSetup
    manifest: dict[str, Any]  # the fields known before the run


@dataclass(frozen=True)
class ShardTask:
    """One shard to make, of a split if the run has splits."""

    split: str | None
    number: int
    rows: Plan

    @property
    def file_name(self) -> str:
        """The name of the shard file."""
        return shard_name(self.number)

    @property
    def receipt_name(self) -> str:
        """The name of its receipt, without a suffix."""
        return self.file_name.partition(".")[0]

    def __str__(self) -> str:
        return self.file_name if self.split is None else f"{self.split}/{self.file_name}"


def make_shard(
    setups: Mapping[str | None, SetSetup], task: ShardTask
) -> tuple[tuple[str | None, int], dict[str, Any]]:
    """Make one shard and publish it with its receipt; return its split and number, and the receipt.

    Args:
        setups: by split.
    """
    setup = setups[task.split]
    manifest, source = setup.manifest, open_source(setup.opened)
    rows, counts = find_rows(task.rows, source), count_rows(task)
    path = setup.folder / task.file_name
    if rows.decoder is None:
        sides = [_Side(None, source.store, rows, manifest, counts[0])]
    else:
        decoder = {**manifest, **manifest["decoder"], SIDE: DECODER}
        ordered = order_decoder(rows, manifest["layout"])
        sides = [
            _Side(ENCODER, source.sides[0], rows, manifest, counts[0]),
            _Side(DECODER, source.sides[1], ordered, decoder, counts[1]),
        ]
    arrays: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for side in sides:
        arrays |= name_tensors(side.lay_out(), side.name)
        metadata |= describe_shard(side.manifest, side.name)
    written = write_tensor_file(path, arrays, metadata)
    described = [side.describe() for side in sides]
    others = described[1] if len(sides) > 1 else None
    known = {"name": path.name, **written, **described[0], "decoder": others}
    receipt = {name: known[name] for name in SHARD_FIELDS}
    write_receipt(setup.folder, task.receipt_name, receipt)
    return (task.split, task.number), receipt


def order_decoder(rows: ShardRows, layout: str) -> ShardRows:
    """Return the decoder's rows of pairs in the order that batches of a layout have.

    Sorted ones are longest first, ties in the order of the encoder's.
    """
    decoder = rows.decoder or rows
    if not LAYOUTS[layout].needs_sorted_rows:
        return decoder
    order, lengths, offsets = (
        np.arange(len(decoder.lengths)),
        decoder.lengths.copy(),
        decoder.batch_offsets,
    )
    sort_within_batches(order, [lengths], offsets)
    encoder_rows = order - np.repeat(offsets[:-1], np.diff(offsets))
    indices = decoder.indices[order]
    return replace(decoder, indices=indices, lengths=lengths, encoder_rows=encoder_rows)


class _Side:
    """The arrays of one side of a shard, or of its only one.

    Args:
        name: one of SIDES, None for the only one.
        manifest: the fields known before the run, of this side.
        counts: of this side, from the plan.
    """

    def __init__(
        self,
        name: str | None,
        store: TokenStore,
        rows: ShardRows,
        manifest: dict[str, Any],
        counts: dict[str, int],
    ) -> None:
        self.name, self.manifest = name, manifest
        self._store, self._rows, self._counts = store, rows, counts
        empty = ARRAYS[manifest["layout"]]({}, Geometry.of_manifest(manifest))
        self._tensors = empty.make_tensors(rows)
        self._arrays = empty.with_tensors(self._tensors)
        self._targets = TargetCounter(store.columns, counts["num_tokens"])

    def lay_out(self) -> dict[str, Tensor]:
        """Return the arrays by name; ids and columns are read while they are written."""
        store, tensors = self._store, self._tensors
        read, pad_id = StoreRows(store, self._rows).fill, self.manifest["pad_id"]
        data = self._arrays.iter_data(read, store.dtype, pad_id)
        num_cells = int(tensors["data_offsets"][-1])
        pieces = _report_progress(data, self._counts["num_tokens"] / num_cells)
        arrays = {name: Tensor.of(array) for name, array in tensors.items()}
        for column in store.columns.values():
            if column.is_per_token:
                cells = _lay_out_column(store, column, self._rows, self._arrays)
                pieces_of = self._targets.watch(column, cells)
                arrays[column.tensor_name] = Tensor(column.dtype, num_cells, pieces_of)
            else:
                values = read_values(store, tensors["original_indices"], column.name)
                found = column.make_arrays(values)
                arrays |= {name: Tensor.of(array) for name, array in found.items()}
        arrays["data"] = Tensor(store.dtype, num_cells, pieces)
        return arrays

    def describe(self) -> dict[str, Any]:
        """Return the counts of this side; its arrays have been written."""
        of_stores = count_of_stores(
            [each.num_sequences for each in self._store.folders], self._tensors
        )
        return {**self._counts, NUM_TARGETS: self._targets.num_targets, "stores": of_stores}


def _lay_out_column(
    store: TokenStore, column: Column, rows: ShardRows, arrays: ShardArrays
) -> Iterator[np.ndarray]:
    """Yield the cells of a column with a value per token, laid out as `data` is."""
    read = StoreRows(store, rows, column=column).fill
    return arrays.iter_data(read, column.dtype, column.fill)


def count_rows(task: ShardTask) -> list[dict[str, int]]:
    """Return the counts of each side of a shard that follow from the plan."""
    return [_count_rows(table) for table in task.rows.table.sides]


def _count_rows(table: BatchTable) -> dict[str, int]:
    num_tokens = table.add_up(table.num_tokens)
    return {
        "num_batches": table.num_batches,
        "num_rows": table.add_up(table.num_rows),
        "num_filler_rows": table.add_up(table.num_filler_rows),
        "num_sequences": table.add_up(table.num_sequences),
        "num_split_sequences": table.add_up(table.num_split_sequences),
        "num_tokens": num_tokens,
        "num_padding_cells": table.add_up(table.num_cells) - num_tokens,
        "longest": int(table.longest.max()),
    }


def _report_progress(cells: Iterator[np.ndarray], tokens_per_cell: float) -> Iterator[np.ndarray]:
    """Yield cells in small pieces, and report each as progress once it is written."""
    for piece in chain.from_iterable(map(iter_pieces, cells)):
        yield piece
        advance(round(len(piece) * tokens_per_cell))


class TargetCounter:
    """Counts the targets of a shard while its arrays are written.

    Args:
        columns: of the shard.
        num_tokens: of the shard, which are all targets if there is no column `targets`.
    """

    def __init__(self, columns: Mapping[str, Column], num_tokens: int) -> None:
        self.num_targets = 0 if TARGETS in columns else num_tokens

    def watch(self, column: Column, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the pieces of a column; count those of `targets`, whose padding is 0."""
        for piece in pieces:
            if column.name == TARGETS:
                self.num_targets += int(np.count_nonzero(piece))
            yield piece


def count_targets(columns: Mapping[str, Column], tensors: Mapping[str, np.ndarray]) -> int:
    """Count the targets in the arrays of a shard."""
    if TARGETS in columns:
        return int(np.count_nonzero(tensors[columns[TARGETS].tensor_name]))
    return int(tensors["lengths"].sum())


# Reading rows


class StoreRows:
    """The ids of planned rows, read from the store.

    Args:
        column: read this column, which has an entry per token, instead of the ids.
    """

    def __init__(self, store: TokenStore, rows: ShardRows, *, column: Column | None = None) -> None:
        self._store = store
        self._rows = Slices(rows.indices, rows.lengths.astype(np.int64), rows.piece_starts)
        self._column = None if column is None else column.name

    def fill(self, cells: np.ndarray, begins: np.ndarray) -> None:
        """Copy the ids of each row to its own place in cells."""
        copy_rows(self._store, self._rows, cells, begins, column=self._column)
        self._check(cells)

    def _check(self, ids: np.ndarray) -> None:
        if self._column is None:  # the values of a column were checked when they were read
            check_store_ids(ids, self._store)


def find_rows(planned: Plan, source: Selection) -> ShardRows:
    """Find planned rows in what they were planned from.

    Raises:
        FolderError: the store has changed since.
    """
    try:
        rows = planned.find(source)
    except LengthsChangedError as error:
        raise changed_error(source.store.shown_path) from error
    if rows.continues is None:
        return rows
    return replace(rows, next_ids=_read_next_ids(source.store, rows))


def _read_next_ids(store: TokenStore, rows: ShardRows) -> np.ndarray:
    """Return the target that follows each piece in the next batch, -1 where there is none."""
    assert rows.continues is not None  # noqa: S101 - asked for only then
    assert rows.piece_starts is not None  # noqa: S101
    goes_on = np.flatnonzero(rows.continues & INTO_NEXT)
    ones = np.ones(len(goes_on), np.int64)
    after = rows.piece_starts[goes_on] + rows.lengths[goes_on]
    following = Slices(rows.indices[goes_on], ones, after)
    ids = np.zeros(len(goes_on), store.dtype)
    places = np.arange(len(goes_on))
    copy_rows(store, following, ids, places)
    check_store_ids(ids, store)
    next_ids = np.full(len(rows.indices), -1, np.int64)
    next_ids[goes_on] = ids
    if TARGETS in store.columns:
        targets = np.zeros(len(goes_on), store.columns[TARGETS].dtype)
        copy_rows(store, following, targets, places, column=TARGETS)
        next_ids[goes_on[targets == 0]] = -1
    return next_ids


def check_store_ids(ids: np.ndarray, store: TokenStore) -> None:
    """Raise FolderError if a damaged store holds an id outside its vocabulary."""
    if is_in_range(ids, store.max_id):  # 0.1 ns an id
        return
    smallest = int(ids.min())
    found = smallest if smallest < 0 else int(ids.max())
    raise FolderError(
        f"{store.shown_path}: holds id {found}, expected ids from 0 to {store.max_id}",
        hint="the store was changed or damaged: make it again with --overwrite",
    )
