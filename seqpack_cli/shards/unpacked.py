"""The sequences of shards in their original order, with their columns.

Every batch is checked once. Then rows are read in the order of the token stores, about a million
ids at a time from all shards, with 32 bytes of memory per row. Split sequences are joined again. A
sequence that is visited several times is yielded once, after its visits were compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.arrays import NO_COLUMN, Columns
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import join_values


@dataclass(frozen=True, slots=True)
class UnpackedSequence:
    """One sequence of the token stores."""

    index: int
    ids: np.ndarray
    columns: dict[str, Any]  # by name, as JSON has them: a value, or a list with one for each id


Row = tuple[int, UnpackedSequence]  # its first token in the whole sequence, and a piece of it


def iter_sequences(
    shards: ShardSet, progress: Progress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (original index, ids) of every sequence in the shards once, in ascending order.

    Sequences are whole: tokens that repeat the piece before (`tokenize --overlap`) are included.

    Raises:
        FolderError: a batch is damaged, a sequence occurs more often than its store's passes allow,
            its visits differ, or a piece of it is missing.
    """
    return ((each.index, each.ids) for each in iter_unpacked(shards, NO_COLUMN, progress))


def iter_unpacked(
    shards: ShardSet, columns: Columns, progress: Progress | None = None
) -> Iterator[UnpackedSequence]:
    """Yield every sequence in the shards once with some of its columns, in ascending order.

    Raises:
        FolderError: a batch is damaged, a sequence occurs more often than its store's passes allow,
            its visits or its pieces have different values, or a piece of it is missing.
    """
    progress = progress or Progress()
    found = _read_indices(shards)
    indices, starts, _ = found
    order = np.lexsort((starts, indices))
    order = order[np.searchsorted(indices, 0, sorter=order) :]  # without filler rows: index -1
    progress.on_total(len(order))
    max_visits = shards.max_visits
    ends = to_offsets([entry["num_sequences"] for entry in shards.manifest["stores"]])[1:].tolist()
    rows = _iter_rows(shards, columns, order, found, progress)
    for index, some in groupby(rows, lambda row: row[1].index):
        try:
            yield join_rows(columns, some, max_visits[bisect_right(ends, index)])
        except ValueError as error:
            raise FolderError(f"{shards.path}: {error}") from error


def read_original_indices(shard: Shard, num_sequences: int) -> np.ndarray:
    """Return the sequence of each row of a shard, int64, -1 for filler rows; a view.

    Raises:
        FolderError: an index is outside the stores, which have `num_sequences`.
    """
    indices, lengths = shard.tensors["original_indices"], shard.tensors["lengths"]
    outside = np.flatnonzero(((indices < 0) | (indices >= num_sequences)) & (lengths > 0))
    if len(outside):
        index = indices[outside[0]]
        raise FolderError(
            f"{shard.path}: original index {index}, the store has {num_sequences:,} sequences"
        )
    return indices


def join_rows(columns: Columns, rows: Iterator[Row], max_visits: int) -> UnpackedSequence:
    """Return the sequence of some rows: the pieces of one or more visits, which must be equal.

    Every visit covers the whole sequence, but each may be cut elsewhere. Rows come by their first
    token, so each either begins a visit or continues one that ends where it starts.

    Raises:
        ValueError: the rows are not those of such visits; with a message without the folder.
    """
    first, second = next(rows), next(rows, None)
    if second is None and first[0] == 0:
        return first[1]
    ends = dict[int, int]()  # where the visits so far end, and how many of them
    ids, known, num_visits, cell = bytearray(), dict[str, Any](), 0, first[1].ids.itemsize
    for start, piece in chain([first], [second] if second else [], rows):
        index, stop = piece.index, start + len(piece.ids)
        num_here = ends.pop(start, 0)
        if num_here > 1:
            ends[start] = num_here - 1
        elif start == 0 and num_visits == max_visits:
            times = "twice" if max_visits == 1 else f"more than {max_visits} times"
            raise ValueError(f"sequence {index} occurs {times}")
        elif start == 0:
            num_visits += 1
        elif not num_here:
            expected = min(ends, default=0)
            raise ValueError(
                f"a piece of sequence {index} begins at token {start}, expected {expected}"
            )
        ends[stop] = ends.get(stop, 0) + 1
        if not _extend(ids, piece.ids.tobytes(), start * cell):
            raise ValueError(f"visits of sequence {index} differ in their ids")
        for name, value in piece.columns.items():
            if columns[name].is_per_token:
                is_same = _extend(known.setdefault(name, []), value, start)
            else:
                is_same = known.setdefault(name, value) == value
            if not is_same:
                of = "visits" if max_visits > 1 else "pieces"
                raise ValueError(f"{of} of sequence {index} differ in column {quote(name)}")
    if len(ends) > 1:
        found = " and ".join(map(str, sorted(ends)[:2]))
        raise ValueError(f"visits of sequence {index} end at tokens {found}")
    return UnpackedSequence(index, np.frombuffer(ids, piece.ids.dtype), known)


def _extend(known: Any, values: Any, start: int) -> bool:
    """Append the values after the known ones; return whether those before are equal.

    Args:
        known, values: a bytearray and bytes, or two lists.
        start: of the values, at most the number of the known ones.
    """
    num_known = len(known) - start
    if num_known == 0:
        known.extend(values)
        return True
    is_same: bool = known[start : start + len(values)] == values[:num_known]
    known.extend(values[num_known:])
    return is_same


def _iter_rows(
    shards: ShardSet,
    columns: Columns,
    order: np.ndarray,
    rows_of: tuple[np.ndarray, np.ndarray, np.ndarray],
    progress: Progress,
) -> Iterator[Row]:
    """Yield each row in the given order.

    Args:
        rows_of: the index, start and length of each row of the shards.
    """
    indices, starts, lengths = rows_of
    opened = (shards.open_shard(number) for number in range(shards.num_shards))
    first_rows = to_offsets([len(shard.tensors["lengths"]) for shard in opened])
    ends = np.cumsum(lengths[order])
    first = 0
    while first < len(order):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + LIMITS.ids_per_block, "right")), first + 1)
        last = min(last, first + LIMITS.sequences_per_block)
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
        progress.on_advance(last - first)
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
        indices, lengths = read_original_indices(shard, num_sequences), shard.tensors["lengths"]
        found.append(indices.copy())  # a view would keep the file of every shard open
        starts.append(shard.arrays.piece_starts.copy())
        all_lengths.append(lengths.copy())
    return np.concatenate(found), np.concatenate(starts), np.concatenate(all_lengths)
