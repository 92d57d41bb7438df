"""Read many sequences of a token store at once, in the order of the disk.

Rows of a shard come from all over the store. Whatever their order, they are read part by part and
in ascending order within each part, so that reads are as sequential as possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.text_values import TextValues
from seqpack_cli.tokens.open_store import AnyStore


class Slices(NamedTuple):
    """Some tokens of each of N sequences."""

    indices: np.ndarray  # int64[N], of the sequences
    lengths: np.ndarray  # int64[N], tokens of each slice
    offsets: np.ndarray | None = None  # int64[N], where in its sequence each begins; None is 0

    def take(self, places: np.ndarray) -> Slices:
        """Return some of the slices."""
        offsets = None if self.offsets is None else self.offsets[places]
        return Slices(self.indices[places], self.lengths[places], offsets)


def read_rows(
    store: AnyStore, rows: Slices, *, column: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read rows into one array, in the order of the store.

    Args:
        column: read this column, which has an entry per token, instead of the ids.

    Returns:
        ids [S], and int64[N], where in ids each row begins.
    """
    order = np.argsort(rows.indices, kind="stable")
    rows = rows.take(order)  # copy_rows sorts again, which takes no time
    offsets = to_offsets(rows.lengths)
    dtype = store.dtype if column is None else store.columns[column].dtype
    ids = np.empty(int(offsets[-1]), dtype)
    copy_rows(store, rows, ids, offsets[:-1], column=column)
    starts = np.empty(len(order), np.int64)
    starts[order] = offsets[:-1]
    return ids, starts


def copy_rows(
    store: AnyStore,
    rows: Slices,
    target: np.ndarray,
    target_starts: np.ndarray,
    *,
    column: str | None = None,
) -> None:
    """Copy rows into an array, each to its place there.

    Args:
        column: as for read_rows.
        target_starts: int64[N], where in target each row begins.

    Raises:
        FolderError: a column holds an impossible value.
    """
    order = np.argsort(rows.indices, kind="stable")
    bounds = np.searchsorted(rows.indices[order], store.part_offsets)
    for part in np.flatnonzero(np.diff(bounds)).tolist():
        places = order[bounds[part] : bounds[part + 1]]
        indices, lengths, offsets = rows.take(places)
        ids, starts = store.view_part(part)
        begins = starts[indices - store.part_offsets[part]] // ids.itemsize
        if offsets is not None:
            begins = begins + offsets
        if column is not None:
            ids = _read_entries(store, part, column, begins, lengths)
            begins = to_offsets(lengths)[:-1]
        copy_ranges(ids, begins, target, target_starts[places], lengths)


def _read_entries(
    store: AnyStore, part: int, column: str, begins: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Return some ranges of a column per token, checked, one after another."""
    columns, offsets = store.stored_columns.open_part(part), to_offsets(lengths)
    stored = np.asarray(columns.view(column))
    values = np.empty(int(offsets[-1]), stored.dtype)
    if stored.strides == (0,):  # one value for all, which `copy_ranges` cannot read
        values[:] = stored[:1]
    else:
        copy_ranges(stored, begins, values, offsets[:-1], lengths)
    return np.asarray(columns.finish(column, values))


def read_values(store: AnyStore, indices: np.ndarray, name: str) -> Values:
    """Read a column that has one entry per sequence: see `ValueReader`."""
    return ValueReader(store, indices).read(name)


class ValueReader:
    """Reads columns that have one entry per sequence, for some sequences.

    Args:
        indices: int64[N], the sequence of each entry; -1 is filled.
    """

    def __init__(self, store: AnyStore, indices: np.ndarray) -> None:
        self._store = store
        self._num_values = len(indices)
        order = np.argsort(indices)  # equal ones in any order
        in_order = indices[order]
        bounds = np.searchsorted(in_order, store.part_offsets)
        self._parts: list[tuple[int, np.ndarray, np.ndarray]] = []  # entries, and where they are
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            some = slice(bounds[part], bounds[part + 1])
            self._parts.append((part, order[some], in_order[some] - store.part_offsets[part]))

    def read(self, name: str) -> Values:
        """Return the N entries of a column in the order of the indices.

        Raises:
            FolderError: the column holds an impossible value.
        """
        column = self._store.columns[name]
        if column.is_text:
            return self._read_texts(name)
        values = np.full(self._num_values, column.fill, column.dtype)
        for part, entries, places in self._parts:
            columns = self._store.stored_columns.open_part(part)
            stored = np.asarray(columns.view(name))
            values[entries] = columns.finish(name, stored[places])
        return values

    def _read_texts(self, name: str) -> TextValues:
        lengths = np.zeros(self._num_values, np.int64)
        ranges = []
        for part, entries, places in self._parts:
            offsets = self._view_texts(part, name).offsets
            begins = offsets[places]
            some = lengths[entries] = offsets[places + 1] - begins
            ranges.append((begins, some))
        found = to_offsets(lengths)
        texts = TextValues(np.empty(int(found[-1]), np.uint8), found)
        for (part, entries, _), (begins, some) in zip(self._parts, ranges, strict=True):
            stored = self._view_texts(part, name).data
            copy_ranges(stored, begins, texts.data, found[entries], some)
        if texts.find_wrong().any():
            for part, entries, _ in self._parts:  # the first part with a wrong one is named
                self._store.stored_columns.open_part(part).finish(name, texts.take(entries))
        return texts

    def _view_texts(self, part: int, name: str) -> TextValues:
        texts = self._store.stored_columns.open_part(part).view(name)
        assert isinstance(texts, TextValues)  # noqa: S101 - of a column of text
        return texts
