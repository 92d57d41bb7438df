"""The keys with which the batches of a plan are read from a StoreDataset, made when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.training.store_dataset import FILLER, Piece
from seqpack_cli.training.token_sequences import NO_ROW


class BatchKeys(Sequence[list[int | Piece]]):
    """The keys with which each batch of a plan is read from a StoreDataset."""

    def __init__(self, rows: ShardRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.batch_offsets) - 1

    @overload
    def __getitem__(self, index: int) -> list[int | Piece]: ...

    @overload
    def __getitem__(self, index: slice) -> list[list[int | Piece]]: ...

    def __getitem__(self, index: int | slice) -> list[int | Piece] | list[list[int | Piece]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        found = self._rows
        index = range(len(self))[index]
        rows = slice(*found.batch_offsets[index : index + 2].tolist())
        indices = found.indices[rows].tolist()
        keys: list[int | Piece] = indices
        if found.piece_starts is not None or found.row_indices is not None:
            starts = _cut(found.piece_starts, rows, missing=0)
            chosen = _cut(found.row_indices, rows, missing=NO_ROW)
            pieces = zip(indices, starts, found.lengths[rows].tolist(), chosen, strict=True)
            keys = [Piece(*piece) for piece in pieces]
        return keys + [FILLER] * int(found.num_filler_rows[index])


def _cut(column: np.ndarray | None, rows: slice, *, missing: int) -> list[int]:
    """Return some rows of a column, or as many values in its place."""
    return [missing] * (rows.stop - rows.start) if column is None else column[rows].tolist()
