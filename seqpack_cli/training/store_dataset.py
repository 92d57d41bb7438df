"""A torch Dataset over token stores: one item is one sequence, or a piece of one.

For batches that are made anew in every epoch: `StoreBatches` chooses the sequences of each batch,
and a collate function lays them out. All sequences of a batch are read at once, in the order in
which they are on disk.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
from torch.utils.data import Dataset, Subset, get_worker_info

from seqpack_cli.errors import MAX_COUNT
from seqpack_cli.files.places import Place
from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.shards.pack_shard import check_store_ids
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.tokens.conditions import Label
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.store import (
    AnyPaths,
    Slices,
    TokenStore,
    copy_rows,
    open_stores,
    parse_places,
    read_values,
)
from seqpack_cli.training.chosen_columns import choose_columns, list_class_names
from seqpack_cli.training.token_sequences import NO_ROW, TokenSequence, TokenSequences

BYTES_PER_ROW = 1 << 16  # reading a row maps 64 KiB around it


class Piece(NamedTuple):
    """A key of StoreDataset: some tokens of one sequence."""

    original_index: int
    start: int
    length: int
    row_index: int = NO_ROW  # the row of a varlen batch for it; NO_ROW: collate_varlen chooses


FILLER = Piece(-1, 0, 0)  # an empty row


class StoreDataset(Dataset[TokenSequence]):
    """Map-style dataset over the sequences of a token store, or of several as one.

    `dataset[i]` is the sequence i, `dataset[Piece(i, start, length)]` a piece of it, as a
    `TokenSequence`; i may be negative. `dataset[FILLER]` has no ids and the index -1. A slice is a
    torch `Subset`, which reads nothing before it is asked for a sequence.

    Args:
        path: the token store's folder, or several folders: sequences are numbered over all, in the
            order given, and the classes of a column are those of all stores.
        columns: the names of the columns to read; None reads all. Stores may differ in the others.
            `targets` is always read if there is one, since the labels of a batch depend on it.

    Raises:
        FolderError: a store is incomplete or damaged, found on opening or at the item.
        OptionError: several stores differ in tokenizer or columns, or one is named twice.
        ValueError: the store has no such column.
    """

    @checks_arguments
    def __init__(self, path: AnyPaths, *, columns: Sequence[str] | None = None) -> None:
        wanted = None if columns is None else [*columns, TARGETS]
        store = open_stores(parse_places(path), wanted=wanted)
        found = wanted if TARGETS in store.columns else columns
        self.columns: Mapping[str, Column] = choose_columns(store.columns, found)
        self._wanted = wanted
        self._folders = [each.opened for each in store.folders]
        self._num_sequences = len(store)
        self._store: TokenStore | None = store
        self._num_bytes_read = 0

    @property
    def paths(self) -> tuple[Place, ...]:
        """The folders of the token stores."""
        return tuple(folder.path for folder in self._folders)

    @property
    def path(self) -> Place:
        """The token store's folder; AttributeError if there are several."""
        if len(self._folders) > 1:
            raise AttributeError(f"{len(self._folders)} token stores have no one path; use paths")
        return self._folders[0].path

    def __len__(self) -> int:
        return self._num_sequences

    def __repr__(self) -> str:
        names = [str(path) for path in self.paths]
        shown = names if len(names) > 1 else names[0]
        return f"StoreDataset({shown!r}, num_sequences={len(self)})"

    @checks_arguments
    def class_names(self, column: str) -> list[Label]:
        """Return the names of the classes of a column, by class id.

        Raises:
            ValueError: there is no such column, or it has no classes.
        """
        return list_class_names(self.columns, column)

    @overload
    def __getitem__(self, key: SupportsIndex | Piece) -> TokenSequence: ...

    @overload
    def __getitem__(self, key: slice) -> Subset[TokenSequence]: ...

    def __getitem__(
        self, key: SupportsIndex | Piece | slice
    ) -> TokenSequence | Subset[TokenSequence]:
        if isinstance(key, slice):
            return Subset(self, range(*key.indices(len(self))))
        return self.__getitems__([key])[0]

    @overload
    def __getitems__(self, keys: Sequence[SupportsIndex | Piece]) -> TokenSequences: ...

    @overload
    def __getitems__(self, keys: list[list[int | Piece]]) -> list[TokenSequences]: ...

    def __getitems__(self, keys: Sequence[Any]) -> TokenSequences | list[TokenSequences]:
        """Read the sequences of a batch, or of several at once, given the keys of each."""
        if isinstance(keys, list) and keys and isinstance(keys[0], list):
            offsets = to_offsets([*map(len, keys)])
            return self._read([*chain.from_iterable(keys)]).cut(offsets)
        return self._read(keys)

    def _read(self, keys: Sequence[SupportsIndex | Piece]) -> TokenSequences:
        store = self.open_store()
        indices, starts, lengths, chosen = self._find(store, keys)
        ids = np.empty(int(lengths.sum()), store.dtype)
        real = np.flatnonzero(lengths)  # filler has no ids
        places = np.cumsum(lengths) - lengths
        rows = Slices(indices[real], lengths[real], starts[real])
        copy_rows(store, rows, ids, places[real])
        check_store_ids(ids, store)
        columns: dict[str, Values] = {}
        token_columns: dict[str, np.ndarray] = {}
        for name, column in self.columns.items():
            if not column.is_per_token:
                columns[name] = read_values(store, indices, name)
                continue
            values = token_columns[name] = np.empty(len(ids), column.dtype)
            copy_rows(store, rows, values, places[real], column=name)
        self._num_bytes_read += ids.nbytes + len(real) * BYTES_PER_ROW * (1 + len(self.columns))
        is_full = self._num_bytes_read > LIMITS.store_bytes_of_worker
        if is_full and get_worker_info() is not None:
            store.let_pages_go()
            self._num_bytes_read = 0
        return TokenSequences(ids, lengths, indices, starts, chosen, columns, token_columns)

    def open_store(self) -> TokenStore:
        """Return the store, or several as one; a spawned worker opens them again."""
        if self._store is None:
            store = open_stores(self.paths, wanted=self._wanted)
            for folder, each in zip(self._folders, store.folders, strict=True):
                folder.check_digest(each.digest)
            self._store = store
        return self._store

    def _find(
        self, store: TokenStore, keys: Sequence[SupportsIndex | Piece]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Check keys; return sequence, first token, length and row of each."""
        indices = _to_indices(keys)
        if indices is None:
            pieces = [self._find_piece(store, key) for key in keys]
            indices, starts, lengths, chosen = np.array(pieces, np.int64).reshape(-1, 4).T
            return indices, starts, lengths, chosen
        outside = (indices < -len(self)) | (indices >= len(self))
        if outside.any():
            raise IndexError(f"sequence {indices[outside.argmax()]} of {len(self)}")
        indices = indices % len(self)  # a negative one counts from the end
        lengths = store.lengths[indices].astype(np.int64)
        return indices, np.zeros_like(indices), lengths, np.full_like(indices, NO_ROW)

    def _find_piece(self, store: TokenStore, key: SupportsIndex | Piece) -> Piece:
        if isinstance(key, tuple) and key == FILLER:
            return FILLER
        if not isinstance(key, tuple):
            index = find_index(key, len(self), "sequence")
            return Piece(index, 0, int(store.lengths[index]))
        if not 3 <= len(key) <= len(FILLER):
            raise TypeError(f"sequence {key}, expected an integer or a Piece")
        index, start, length, row_index = Piece(*map(operator.index, key))
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        longest = int(store.lengths[index])
        if start < 0 or length < 1 or start + length > longest:
            raise IndexError(f"{key} is out of range: the sequence has {longest} tokens")
        if not NO_ROW <= row_index <= MAX_COUNT:
            raise IndexError(f"{key}: row_index is {row_index}, expected 0 or more, or {NO_ROW}")
        return Piece(index, start, length, row_index)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store": None}  # a spawned worker opens its own maps


def _to_indices(keys: Sequence[SupportsIndex | Piece]) -> np.ndarray | None:
    """Return the keys as an array, or None unless all are indices."""
    try:
        indices = np.array(keys)
    except ValueError:  # some are pieces
        return None
    is_plain = indices.ndim == 1 and indices.dtype.kind == "i"
    return indices.astype(np.int64, copy=False) if is_plain else None
