"""Read many sequences of a token store at once, in the order of the disk.

Rows of a shard come from all over the store. Whatever their order, they are read part by part and
in ascending order within each part, so that reads are as sequential as possible.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.text_values import TextValues
from seqpack_cli.tokens.token_store import TokenStore


def read_rows(
    store: TokenStore,
    indices: np.ndarray,
    lengths: np.ndarray,
    offsets: np.ndarray | None = None,
    *,
    column: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Read rows into one array, in the order of the store.

    Args:
        indices: int64[N], the sequence of each row.
        lengths: int64[N], of the rows.
        offsets: where in its sequence each row begins; None: at its start.
        column: read this column, which has an entry per token, instead of the ids.

    Returns:
        ids [S], and int64[N], where in ids each row begins.
    """
    order = np.argsort(indices, kind="stable")
    indices, lengths = indices[order], lengths[order]  # copy_rows sorts again, which takes no time
    ends = np.cumsum(lengths)
    offsets = None if offsets is None else offsets[order]
    dtype = store.dtype if column is None else store.columns[column].rules.dtype
    ids = np.empty(int(ends[-1]) if len(ends) else 0, dtype)
    copy_rows(store, indices, lengths, ids, ends - lengths, offsets, column=column)
    starts = np.empty(len(order), np.int64)
    starts[order] = ends - lengths
    return ids, starts


def copy_rows(
    store: TokenStore,
    indices: np.ndarray,
    lengths: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
    offsets: np.ndarray | None = None,
    *,
    column: str | None = None,
) -> None:
    """Copy rows into an array, each to its place there.

    Args:
        indices, lengths, offsets, column: as for read_rows.
        target_starts: int64[N], where in target each row begins.

    Raises:
        FolderError: a column holds an impossible value.
    """
    order = np.argsort(indices, kind="stable")
    bounds = np.searchsorted(indices[order], store.part_offsets)
    for part in np.flatnonzero(np.diff(bounds)).tolist():
        rows = order[bounds[part] : bounds[part + 1]]
        ids, starts = store.view_part(part)
        source_starts = starts[indices[rows] - store.part_offsets[part]] // ids.itemsize
        if offsets is not None:
            source_starts = source_starts + offsets[rows]
        if column is None:
            copy_ranges(ids, source_starts, target, target_starts[rows], lengths[rows])
            continue
        columns, starts = store.stored_columns.open_part(part), to_offsets(lengths[rows])
        stored = columns.view(column)
        assert isinstance(stored, np.ndarray)  # noqa: S101 - texts are one per sequence
        values = np.empty(int(starts[-1]), stored.dtype)
        copy_ranges(stored, source_starts, values, starts[:-1], lengths[rows])
        checked = np.asarray(columns.finish(column, values))
        copy_ranges(checked, starts[:-1], target, target_starts[rows], lengths[rows])


def read_values(store: TokenStore, indices: np.ndarray, name: str) -> Values:
    """Read a column that has one entry per sequence: see `ValueReader`."""
    return ValueReader(store, indices).read(name)


class ValueReader:
    """Reads columns that have one entry per sequence, for some sequences.

    Args:
        indices: int64[N], the sequence of each entry; -1 is filled.
    """

    def __init__(self, store: TokenStore, indices: np.ndarray) -> None:
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
        if column.rules.is_text:
            return self._read_texts(name)
        values = np.full(self._num_values, column.rules.fill, column.rules.dtype)
        for part, entries, places in self._parts:
            columns = self._store.stored_columns.open_part(part)
            stored = np.asarray(columns.view(name))
            values[entries] = columns.finish(name, stored[places])
        return values

    def _read_texts(self, name: str) -> TextValues:
        lengths = np.zeros(self._num_values, np.int64)
        starts = []
        for part, entries, places in self._parts:
            offsets = self._view_texts(part, name).offsets
            starts.append(offsets[places])
            lengths[entries] = offsets[places + 1] - starts[-1]
        found = to_offsets(lengths)
        texts = TextValues(np.empty(int(found[-1]), np.uint8), found)
        for (part, entries, _), begins in zip(self._parts, starts, strict=True):
            stored = self._view_texts(part, name).data
            copy_ranges(stored, begins, texts.data, found[entries], lengths[entries])
        if texts.find_wrong().any():
            for part, entries, _ in self._parts:  # the first part with a wrong one is named
                self._store.stored_columns.open_part(part).finish(name, texts.take(entries))
        return texts

    def _view_texts(self, part: int, name: str) -> TextValues:
        texts = self._store.stored_columns.open_part(part).view(name)
        assert isinstance(texts, TextValues)  # noqa: S101 - of a column of text
        return texts
