"""The sequences of shards in their original order, with their columns.

Every batch is checked once. Then rows are read in the order of the token store, about a million ids
at a time from all shards, with 32 bytes of memory per row. Split sequences are joined again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.shard_columns import NO_COLUMN, Columns
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.text_values import join_values

IDS_PER_READ = 1 << 20  # whose places take 8 bytes each; a longer row is read alone
ROWS_PER_READ = 1 << 16


@dataclass(frozen=True, slots=True)
class UnpackedSequence:
    """One sequence of the token store."""

    index: int
    ids: np.ndarray
    columns: dict[str, Any]  # by name, as JSON has them: a value, or a list with one for each id


def iter_sequences(
    shards: ShardSet, progress: Progress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (original index, ids) of every sequence in the shards, in ascending order.

    Raises:
        FolderError: a batch is damaged, a sequence occurs twice, or a piece of it is missing.
    """
    return ((each.index, each.ids) for each in iter_unpacked(shards, NO_COLUMN, progress))


def iter_unpacked(
    shards: ShardSet, columns: Columns, progress: Progress | None = None
) -> Iterator[UnpackedSequence]:
    """Yield every sequence in the shards with some of its columns, in ascending order.

    Raises:
        FolderError: a batch is damaged, a sequence occurs twice, a piece of it is missing, or its
            pieces have different values.
    """
    progress = progress or Progress()
    indices, starts, lengths = _read_indices(shards)
    order = np.lexsort((starts, indices))
    order = order[np.searchsorted(indices, 0, sorter=order) :]  # without filler rows: index -1
    progress.on_total(len(order))
    pieces: list[UnpackedSequence] = []
    num_ids = 0  # of the pieces
    for start, piece in _iter_rows(shards, columns, order, indices, starts, lengths):
        if pieces and piece.index != pieces[0].index:
            yield _join(shards, columns, pieces)
            pieces, num_ids = [], 0
        if start != num_ids:
            what = f"sequence {piece.index} occurs twice"
            if start:
                what = f"a piece of sequence {piece.index} begins at token {start}, "
                what += f"expected {num_ids}"
            raise FolderError(f"{shards.path}: {what}")
        pieces.append(piece)
        num_ids += len(piece.ids)
        progress.on_advance(1)
    if pieces:
        yield _join(shards, columns, pieces)


def _join(shards: ShardSet, columns: Columns, pieces: list[UnpackedSequence]) -> UnpackedSequence:
    """Return the whole sequence of some pieces."""
    if len(pieces) == 1:
        return pieces[0]
    index, joined = pieces[0].index, dict[str, Any]()
    for name, column in columns.items():
        values = [piece.columns[name] for piece in pieces]
        if column.is_per_token:
            joined[name] = [value for piece in values for value in piece]
        elif any(value != values[0] for value in values):
            what = f"pieces of sequence {index} differ in column {quote(name)}"
            raise FolderError(f"{shards.path}: {what}")
        else:
            joined[name] = values[0]
    return UnpackedSequence(index, np.concatenate([piece.ids for piece in pieces]), joined)


def _iter_rows(
    shards: ShardSet,
    columns: Columns,
    order: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> Iterator[tuple[int, UnpackedSequence]]:
    """Yield each row and its first token, in the given order."""
    opened = (shards.open_shard(number) for number in range(shards.num_shards))
    first_rows = to_offsets([len(shard.tensors["lengths"]) for shard in opened])
    ends = np.cumsum(lengths[order])
    first = 0
    while first < len(order):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + IDS_PER_READ, "right")), first + 1)
        last = min(last, first + ROWS_PER_READ)
        rows = order[first:last]
        offsets = to_offsets(lengths[rows])
        ids, values = _read_block(shards, columns, rows, first_rows, offsets)
        bounds = offsets.tolist()
        for place, (index, start) in enumerate(
            zip(indices[rows].tolist(), starts[rows].tolist(), strict=True)
        ):
            cells = slice(bounds[place], bounds[place + 1])
            found = {
                name: values[name][cells if column.is_per_token else place]
                for name, column in columns.items()
            }
            yield start, UnpackedSequence(index, ids[cells], found)
        first = last


def _read_block(
    shards: ShardSet,
    columns: Columns,
    rows: np.ndarray,
    first_rows: np.ndarray,
    offsets: np.ndarray,
) -> tuple[np.ndarray, dict[str, list[Any]]]:
    """Read some rows, shard by shard; return their ids and columns."""
    num_ids, by_row, by_cell = int(offsets[-1]), dict[str, list[Values]](), dict[str, np.ndarray]()
    ids = np.empty(num_ids, shards.manifest["dtype"])
    for name, column in columns.items():
        if column.is_per_token:
            by_cell[name] = np.empty(num_ids, column.dtype)
        else:
            by_row[name] = []
    numbers = np.searchsorted(first_rows, rows, "right") - 1
    by_shard = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[by_shard], np.arange(len(first_rows)))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        some = by_shard[bounds[number] : bounds[number + 1]]
        shard = shards.open_shard(number)
        found, starts = rows[some] - first_rows[number], offsets[some]
        shard.arrays.copy_rows(found, ids, starts)
        for name, cells in by_cell.items():
            shard.arrays.copy_rows(found, cells, starts, columns[name].tensor_name)
        for name, pieces in by_row.items():
            pieces.append(columns[name].view(shard.tensors).take(found))
        let_pages_go(shard.tensors["data"])
    places = np.empty(len(rows), np.int64)
    places[by_shard] = np.arange(len(rows))
    values: dict[str, Values] = {**by_cell}
    values |= {name: join_values(pieces).take(places) for name, pieces in by_row.items()}
    return ids, {name: columns[name].spell(found) for name, found in values.items()}


def _read_indices(shards: ShardSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check every batch; return each row's original index, start in its sequence, and length."""
    num_sequences = shards.num_store_sequences
    nothing = np.empty(0, np.int64)
    found, starts, all_lengths = [nothing], [nothing], [nothing]
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        for index in np.flatnonzero(shard.find_unsound()).tolist():
            shard[index]  # raises the error that describes what is wrong
        indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
        outside = np.flatnonzero(((indices < 0) | (indices >= num_sequences)) & (lengths > 0))
        if len(outside):
            index = indices[outside[0]]
            raise FolderError(
                f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
            )
        found.append(indices.copy())  # a view would keep the file of every shard open
        starts.append(shard.arrays.piece_starts.copy())
        all_lengths.append(lengths.copy())
    return np.concatenate(found), np.concatenate(starts), np.concatenate(all_lengths)
