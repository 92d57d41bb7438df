"""Find the rows of a shard in the token store, and read and check their ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqpack_cli.batching.order import LengthsChangedError
from seqpack_cli.batching.plan import PlannedRows, ShardRows
from seqpack_cli.batching.rows import INTO_NEXT
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.layouts import is_in_range
from seqpack_cli.shards.selection import SelectedStore
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows


class StoreRows:
    """The ids of planned rows, read from the store: a `layouts.RowSource`.

    Args:
        column: read this column, which has an entry per token, instead of the ids.
    """

    def __init__(self, store: TokenStore, rows: ShardRows, *, column: Column | None = None) -> None:
        self._store = store
        self._rows = Slices(rows.indices, rows.lengths.astype(np.int64), rows.piece_starts)
        self._column = None if column is None else column.name
        self.dtype = store.dtype if column is None else column.dtype

    def fill(self, cells: np.ndarray, begins: np.ndarray) -> None:
        """Copy the ids of each row to its own place in cells."""
        copy_rows(self._store, self._rows, cells, begins, column=self._column)
        self._check(cells)

    def _check(self, ids: np.ndarray) -> None:
        if self._column is None:  # the values of a column were checked when they were read
            check_store_ids(ids, self._store)


def find_rows(planned: PlannedRows, source: SelectedStore) -> ShardRows:
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


def changed_error(path: str) -> FolderError:
    """Return the error for a store, or shards, that changed during a run."""
    hint = "run the same command again"
    return FolderError(f"{path}: changed since this run began", hint=hint)


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
