"""The tasks of a pack run, in a worker: count the lengths of parts, write a shard and its receipt.

A worker opens the same stores as the run, with the same selection of sequences. It finds the rows
of a shard in the stores, lays them out, and reads ids and columns while they are written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.batching.options import DECODER, LAYOUTS, ResolvedOptions
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
from seqpack_cli.shards.alignment import Alignment
from seqpack_cli.shards.layouts import Geometry, is_in_range, iter_pieces
from seqpack_cli.shards.manifest import (
    NUM_TARGETS,
    SHARD_FIELDS,
    count_of_stores,
    describe_shard,
    name_tensors,
    shard_name,
)
from seqpack_cli.shards.selection import Selection, list_own_options
from seqpack_cli.shards.shard import ARRAYS
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows, open_stores, read_values

# Columns of a table of batches that are added up for each shard.
SUMS = ("num_rows", "num_filler_rows", "num_sequences", "num_split_sequences", "num_tokens")

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
    sides, own = list[TokenStore](), list_own_options(setup.options, len(setup.places))
    for places, digest, options in zip(setup.places, setup.digests, own, strict=True):
        store = open_stores(places, check_indices=False, without=options.drop_column)
        if store.digest != digest:
            raise changed_error(store.shown_path)
        sides.append(store)
    alignment = Alignment(*sides) if len(sides) > 1 else None
    return Selection(sides[0], setup.options, setup.passes, alignment=alignment)


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
    rows = find_rows(task.rows, source)
    sides = [(manifest, rows)]
    if rows.decoder is not None:
        decoder = {**manifest, **manifest["decoder"], SIDE: DECODER}
        sides.append((decoder, order_decoder(rows, manifest["layout"])))
    arrays: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    counted = [count_rows(table) for table in task.rows.table.sides]
    for (own, of_side), store, counts in zip(sides, source.sides, counted, strict=True):
        arrays |= name_tensors(_lay_out(store, of_side, own, counts), own.get(SIDE))
        metadata |= describe_shard(own, own.get(SIDE))
    path = setup.folder / task.file_name
    written = write_tensor_file(path, arrays, metadata)
    first, *others = counted
    known = {"name": path.name, **written, **first, "decoder": others[0] if others else None}
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
    order, lengths = np.arange(len(decoder.lengths)), decoder.lengths.copy()
    offsets = decoder.batch_offsets
    sort_within_batches(order, [lengths], offsets)
    encoder_rows = order - np.repeat(offsets[:-1], np.diff(offsets))
    indices = decoder.indices[order]
    return replace(decoder, indices=indices, lengths=lengths, encoder_rows=encoder_rows)


def _lay_out(
    store: TokenStore, rows: ShardRows, manifest: dict[str, Any], counts: dict[str, Any]
) -> dict[str, Tensor]:
    """Return the arrays of one side by name; ids and columns are read while they are written.

    Args:
        manifest: the fields known before the run, of this side.
        counts: of this side, from the plan; to which those of stores and targets are added. Those
            of a column of targets are known once it is written.
    """
    empty = ARRAYS[manifest["layout"]]({}, Geometry.of_manifest(manifest))
    tensors = empty.make_tensors(rows)
    laid_out = empty.with_tensors(tensors)
    counts[NUM_TARGETS] = 0 if TARGETS in store.columns else counts["num_tokens"]
    counts["stores"] = count_of_stores([each.num_sequences for each in store.folders], tensors)
    num_cells = int(tensors["data_offsets"][-1])
    tokens_per_cell = counts["num_tokens"] / num_cells
    slices = Slices(rows.indices, rows.lengths.astype(np.int64), rows.piece_starts)

    def read(dtype: str, fill: int, column: str | None = None) -> Tensor:
        fill_rows = functools.partial(fill_cells, store, slices, column=column)

        def watch() -> Iterator[np.ndarray]:
            cells = laid_out.iter_data(fill_rows, dtype, fill)
            for piece in chain.from_iterable(map(iter_pieces, cells)):
                if column == TARGETS:
                    counts[NUM_TARGETS] += int(np.count_nonzero(piece))  # padding is 0
                yield piece
                if column is None:
                    advance(round(len(piece) * tokens_per_cell))

        return Tensor(dtype, num_cells, watch())

    arrays = {name: Tensor.of(array) for name, array in tensors.items()}
    for column in store.columns.values():
        if column.is_per_token:
            arrays[column.tensor_name] = read(column.dtype, column.fill, column.name)
        else:
            values = read_values(store, tensors["original_indices"], column.name)
            found = column.make_arrays(values)
            arrays |= {name: Tensor.of(array) for name, array in found.items()}
    arrays["data"] = read(store.dtype, manifest["pad_id"])
    return arrays


def count_rows(table: BatchTable) -> dict[str, Any]:
    """Return the counts of one side of a shard that follow from the plan."""
    counts: dict[str, Any] = {"num_batches": table.num_batches}
    counts |= {name: table.add_up(getattr(table, name)) for name in SUMS}
    counts["num_padding_cells"] = table.add_up(table.num_cells) - counts["num_tokens"]
    counts["longest"] = int(table.longest.max())
    return counts


def count_targets(columns: Mapping[str, Column], tensors: Mapping[str, np.ndarray]) -> int:
    """Count the targets in the arrays of a shard."""
    if TARGETS in columns:
        return int(np.count_nonzero(tensors[columns[TARGETS].tensor_name]))
    return int(tensors["lengths"].sum())


# Reading rows


def fill_cells(
    store: TokenStore,
    rows: Slices,
    cells: np.ndarray,
    begins: np.ndarray,
    *,
    column: str | None = None,
) -> None:
    """Copy the ids of each row to its own place in cells.

    Args:
        column: read this column, which has an entry per token, instead of the ids.
    """
    copy_rows(store, rows, cells, begins, column=column)
    if column is None:  # the values of a column were checked when they were read
        check_store_ids(cells, store)


def find_rows(planned: Plan, source: Selection) -> ShardRows:
    """Find planned rows in what they were planned from.

    Raises:
        FolderError: the store has changed since.
    """
    store = source.store
    try:
        rows = planned.find(source)
    except LengthsChangedError as error:
        raise changed_error(store.shown_path) from error
    if rows.continues is None or rows.piece_starts is None:
        return rows
    # The target that follows each piece in the next batch, -1 where there is none.
    goes_on = np.flatnonzero(rows.continues & INTO_NEXT)
    after = rows.piece_starts[goes_on] + rows.lengths[goes_on]
    following = Slices(rows.indices[goes_on], np.ones(len(goes_on), np.int64), after)
    places = np.arange(len(goes_on))
    ids = np.zeros(len(goes_on), store.dtype)
    fill_cells(store, following, ids, places)
    next_ids = np.full(len(rows.indices), -1, np.int64)
    next_ids[goes_on] = ids
    if TARGETS in store.columns:
        targets = np.zeros(len(goes_on), store.columns[TARGETS].dtype)
        fill_cells(store, following, targets, places, column=TARGETS)
        next_ids[goes_on[targets == 0]] = -1
    return replace(rows, next_ids=next_ids)


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
