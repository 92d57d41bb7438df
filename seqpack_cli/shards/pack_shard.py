"""One task of a pack run: write the sequences of some batches to a shard file and its receipt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.batching.options import DECODER, ENCODER, LAYOUTS
from seqpack_cli.batching.order import sort_within_batches
from seqpack_cli.batching.plan import BatchTable, PlannedRows, ShardRows
from seqpack_cli.files.manifest import SIDE
from seqpack_cli.files.places import Place
from seqpack_cli.files.tensor_file import Tensor, write_tensor_file
from seqpack_cli.runs.run_folder import write_receipt
from seqpack_cli.runs.workers import advance
from seqpack_cli.shards.arrays import find_layout, make_tensors
from seqpack_cli.shards.layouts import Geometry, Layout, Tensors, fill_with, iter_pieces
from seqpack_cli.shards.shard_manifest import (
    SHARD_FIELDS,
    describe_shard,
    shard_name,
)
from seqpack_cli.shards.sides import name_tensors
from seqpack_cli.shards.source_setup import SourceSetup, open_source
from seqpack_cli.shards.store_counts import count_of_stores
from seqpack_cli.shards.store_rows import StoreRows, find_rows
from seqpack_cli.shards.targets import NUM_TARGETS, TargetCounter
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import TokenStore, ValueReader


@dataclass(frozen=True)
class ShardSetup:
    """What a worker needs to make any shard of a run."""

    folder: Place
    opened: SourceSetup
    manifest: dict[str, Any]  # the fields known before the run


@dataclass(frozen=True)
class ShardTask:
    """One shard to make."""

    number: int
    rows: PlannedRows

    def __str__(self) -> str:
        return shard_name(self.number)


def make_shard(setup: ShardSetup, task: ShardTask) -> tuple[int, dict[str, Any]]:
    """Make one shard and publish it with its receipt; return its number and receipt."""
    manifest, source = setup.manifest, open_source(setup.opened)
    rows = find_rows(task.rows, source)
    counts = count_rows(task)
    path = setup.folder / shard_name(task.number)
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
    write_receipt(setup.folder, path.name.removesuffix(path.suffix), receipt)
    return task.number, receipt


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
        self._layout = find_layout(manifest["layout"], Geometry.of_manifest(manifest))
        self._tensors = make_tensors(self._layout, rows)
        self._targets = TargetCounter(store.columns, counts["num_tokens"])

    def lay_out(self) -> dict[str, Tensor]:
        """Return the arrays by name; ids and columns are read while they are written."""
        store, tensors = self._store, self._tensors
        data = self._layout.iter_data(tensors, StoreRows(store, self._rows))
        num_cells = int(tensors["data_offsets"][-1])
        pieces = _report_progress(data, self._counts["num_tokens"] / num_cells)
        arrays = {name: Tensor.of(array) for name, array in tensors.items()}
        values = ValueReader(store, tensors["original_indices"]) if store.columns else None
        for column in store.columns.values():
            if column.is_per_token:
                cells = _lay_out_column(store, column, self._rows, tensors, self._layout)
                pieces_of = self._targets.watch(column, cells)
                arrays[column.tensor_name] = Tensor(column.dtype, num_cells, pieces_of)
            elif values is not None:
                found = column.make_arrays(values.read(column.name))
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
    store: TokenStore, column: Column, rows: ShardRows, tensors: Tensors, layout: Layout
) -> Iterator[np.ndarray]:
    """Yield the cells of a column with a value per token, laid out as `data` is."""
    filled = fill_with(layout, column.fill)
    return filled.iter_data(tensors, StoreRows(store, rows, column=column))


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
