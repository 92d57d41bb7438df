"""Find a sequence of the token store in shards: its split, its batches and rows, its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.errors import OptionError
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.batch_places import find_place
from seqpack_cli.reporting.row_values import join_pieces, read_row_values
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import SplitSet


@dataclass(frozen=True)
class _Row:
    """A sequence in a batch of shards, or a piece of one."""

    start: int  # of the piece, in tokens of the sequence
    place: dict[str, Any]  # shard, batch, and where in it
    ids: np.ndarray
    columns: dict[str, Any]


def find_split(splits: SplitSet, index: int) -> tuple[str, ShardSet]:
    """Return the split that has a sequence."""
    for name, shards in splits.splits.items():
        if next(_iter_rows(shards, index), None) is not None:
            return name, shards
    raise _missing_error(splits.path, index, shards)


def find_in_shards(
    shards: ShardSet, index: int
) -> tuple[dict[str, Any], np.ndarray, dict[str, Any]]:
    """Return where a sequence is in the shards, its ids and columns, joined if it was split."""
    rows = list(_iter_rows(shards, index))
    if not rows:
        raise _missing_error(shards.path, index, shards)
    visits = [row.place for row in rows if not row.start]
    of_start: dict[int, _Row] = {}
    for row in rows:
        of_start.setdefault(row.start, row)
    # Visits may be cut at different tokens, so each piece follows from the end of the one before.
    pieces, end = list[_Row](), 0
    while end in of_start:
        pieces.append(of_start[end])
        end += len(pieces[-1].ids)
    if not pieces:
        raise _missing_error(shards.path, index, shards)
    place = {**pieces[0].place, "num_pieces": len(pieces), "visits": visits}
    ids = np.concatenate([piece.ids for piece in pieces])
    return place, ids, join_pieces([piece.columns for piece in pieces])


def _iter_rows(shards: ShardSet, index: int) -> Iterator[_Row]:
    """Yield a sequence, or pieces of it, in the order of the batches."""
    if index < 0:  # as of filler rows
        return
    rules = LAYOUTS[shards.layout]
    for number in range(shards.num_shards):
        shard = shards.open_shard(number)
        starts = shard.arrays.piece_starts
        checked: dict[int, Batch] = {}  # the batch of the previous row
        for position in np.flatnonzero(shard.tensors["original_indices"] == index).tolist():
            inside, row = shard.arrays.find_batch(position)
            batch = int(shards.batch_offsets[number]) + inside
            if inside not in checked:
                checked = {inside: shard[inside]}
            place = {"shard": shard.path.name, "batch": batch}
            place |= find_place(checked[inside], rules, row)
            values = read_row_values(checked[inside], shards.columns, row)
            yield _Row(int(starts[position]), place, checked[inside].row(row), values)


def _missing_error(path: Place, index: int, shards: ShardSet) -> OptionError:
    """Return the error about a sequence that shards do not have."""
    num_sequences = shards.num_store_sequences
    if index >= num_sequences:
        return OptionError(f"--sequence {index}: {path} has sequences 0 to {num_sequences - 1}")
    return OptionError(
        f"--sequence {index}: not in {path}",
        hint="it may have been dropped: seqpack inspect shows how many and why",
    )
