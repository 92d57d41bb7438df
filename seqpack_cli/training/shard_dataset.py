"""A torch Dataset over shards: one item is one whole batch, ready for a model.

Give it to torch's own `DataLoader(dataset, batch_size=None, shuffle=True, num_workers=...,
pin_memory=True)`: batches are made already, the loader only fetches them. Items come from memory
maps, checked in numpy, and ids are widened to int64, which `nn.Embedding` needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import Dataset

from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.shards.varlen import VarlenBatch


class PaddedIds(NamedTuple):
    """An item of `padded` shards."""

    ids: torch.Tensor  # int64[B, width]
    mask: torch.Tensor  # bool[B, width], True where a cell holds a token


class VarlenIds(NamedTuple):
    """An item of `varlen` shards: one row of several sequences."""

    ids: torch.Tensor  # int64[S]
    cu_seqlens: torch.Tensor  # int32[B + 1], where each sequence begins, and the end
    max_seqlen: int


class ShardDataset(Dataset[PackedSequence | PaddedIds | VarlenIds]):
    """Map-style dataset over the batches of finished shards.

    `dataset[i]` is a `PackedSequence` (int64 `data`, `batch_sizes` on the CPU; rows are longest
    first already, so it has no `sorted_indices`); for `padded` shards `PaddedIds`, in which the
    mask of a filler row is False throughout; for `varlen` shards `VarlenIds`.

    Raises:
        FolderError: the shards are incomplete or damaged, found on opening or at the item.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._shards: ShardSet | None = open_shards(path)
        self._num_batches = len(self._shards)

    def __len__(self) -> int:
        return self._num_batches

    def __getitem__(self, index: int) -> PackedSequence | PaddedIds | VarlenIds:
        batch = self._open()[index]
        if isinstance(batch, PackedBatch):
            batch_sizes = torch.from_numpy(batch.batch_sizes.copy())
            return PackedSequence(_widen(batch.data), batch_sizes, None, None)
        if isinstance(batch, VarlenBatch):
            cu_seqlens = torch.from_numpy(batch.cu_seqlens)
            return VarlenIds(_widen(batch.data), cu_seqlens, int(batch.lengths.max()))
        return PaddedIds(_widen(batch.ids), torch.from_numpy(batch.mask.copy()))

    def original_indices(self, index: int) -> np.ndarray:
        """Give the token store's index of each row of a batch, -1 for filler, int64[B]."""
        indices = self._open()[index].original_indices
        assert indices is not None  # noqa: S101 - shards always have them
        return indices.copy()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_shards": None}  # maps are opened anew in a spawned worker

    def _open(self) -> ShardSet:
        if self._shards is None:
            self._shards = open_shards(self.path)
        return self._shards


def _widen(ids: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(ids.astype(np.int64))
