"""A torch Dataset over a token store: one item is one sequence, or a piece of one.

For batches that are made anew in every epoch: `StoreBatches` says which sequences are together,
and a collate function lays them out. All sequences of a batch are read at once, in the order of the
disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.layouts import is_in_range
from seqpack_cli.tokens.read_rows import copy_rows
from seqpack_cli.tokens.token_store import TokenStore, open_store

BYTES_KEPT = 64 << 20  # of maps by a worker: there may be many
BYTES_PER_ROW = 1 << 16  # a look at a row maps 64 KiB around it


class Piece(NamedTuple):
    """Some tokens of a sequence of the store."""

    original_index: int
    start: int
    length: int


class TokenSequence(NamedTuple):
    """The ids of a sequence, or of a piece of it."""

    ids: torch.Tensor  # int64[length]
    original_index: int


FILLER = Piece(-1, 0, 0)  # an empty row


class StoreDataset(Dataset[TokenSequence]):
    """Map-style dataset over the sequences of a token store.

    `dataset[i]` is the sequence i, `dataset[Piece(i, start, length)]` a piece of it, as a
    `TokenSequence`; `dataset[FILLER]` has no ids and the index -1.

    Raises:
        FolderError: the store is incomplete or damaged, found on opening or at the item.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._store: TokenStore | None = open_store(path)
        self._num_sequences = len(self._store)
        self._num_bytes_read = 0

    def __len__(self) -> int:
        return self._num_sequences

    def __getitem__(self, key: int | Piece) -> TokenSequence:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int | Piece]) -> list[TokenSequence]:
        store = self.open_store()
        indices, starts, lengths = self._find(store, keys).T
        ids = np.empty(int(lengths.sum()), store.dtype)
        real = np.flatnonzero(lengths)  # filler has no ids
        places = np.cumsum(lengths) - lengths
        copy_rows(store, indices[real], lengths[real], ids, places[real], starts[real])
        self._num_bytes_read += ids.nbytes + len(real) * BYTES_PER_ROW
        if self._num_bytes_read > BYTES_KEPT and get_worker_info() is not None:
            store.let_pages_go()
            self._num_bytes_read = 0
        if not is_in_range(ids, store.max_id):
            raise FolderError(
                f"{self.path}: id {int(ids.max())} or another, expected ids from 0 to "
                f"{store.max_id}",
                hint="the store was changed or damaged: run tokenize --overwrite",
            )
        rows = torch.split_with_sizes(torch.from_numpy(ids.astype(np.int64)), lengths.tolist())
        return [TokenSequence(*found) for found in zip(rows, indices.tolist(), strict=True)]

    def open_store(self) -> TokenStore:
        """Give the store, opened anew in a worker that was spawned."""
        if self._store is None:
            self._store = open_store(self.path)
        return self._store

    def _find(self, store: TokenStore, keys: Sequence[int | Piece]) -> np.ndarray:
        """Check keys, and give each as a piece, int64[N, 3]."""
        whole = -1  # in place of a length
        found = [key if isinstance(key, tuple) else (key, 0, whole) for key in keys]
        pieces = np.array(found, np.int64).reshape(-1, 3)
        indices, starts, lengths = pieces.T
        is_filler = (pieces == FILLER).all(axis=1)
        outside = ~is_filler & ((indices < 0) | (indices >= len(self)))
        if outside.any():
            raise IndexError(f"sequence {indices[outside.argmax()]} of {len(self)}")
        longest = np.where(is_filler, 0, store.lengths[indices])
        np.copyto(lengths, longest, where=lengths == whole)
        wrong = (starts < 0) | (lengths < 1) | (lengths > longest - starts)
        wrong &= ~is_filler
        if wrong.any():
            row = int(wrong.argmax())
            raise IndexError(f"{keys[row]}, but the sequence has {longest[row]} tokens")
        return pieces

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_store": None}  # maps are opened anew in a spawned worker
