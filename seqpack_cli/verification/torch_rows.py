"""A batch as torch's functions take it: longest row first, none empty, padded on the right.

This is the only table of layouts in `verify`: a `packed` batch keeps its `batch_sizes`, a `padded`
one its rectangle, with left padding moved to the right, and the rows of a decoder sorted; sequences
that share rows are sorted and packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.packed import PackedBatch, pack_sequence
from seqpack_cli.shards.padded import PaddedBatch, pad_sequence
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch


@dataclass(frozen=True)
class TorchRows:
    """The rows of one batch, without filler."""

    cells: np.ndarray  # ids: [S] time step by time step, or [B, width] with padding
    lengths: np.ndarray  # int64[B]
    order: np.ndarray  # int64[B], the row of the batch that each one was
    batch_sizes: np.ndarray | None = None  # int64[T], if cells are time step by time step

    @property
    def tokens(self) -> np.ndarray:
        """The ids without padding, in the order of cells."""
        if self.batch_sizes is not None:
            return self.cells
        tokens: np.ndarray = self.cells[np.arange(self.cells.shape[1]) < self.lengths[:, None]]
        return tokens

    def pack(self, ids: torch.Tensor) -> PackedSequence:
        """Return torch's PackedSequence of the cells, given flat on the device."""
        if self.batch_sizes is not None:
            return PackedSequence(ids, torch.from_numpy(self.batch_sizes.copy()), None, None)
        lengths = torch.from_numpy(self.lengths.copy())
        return pack_padded_sequence(ids.view(self.cells.shape), lengths, batch_first=True)

    def to_packed_sequence(self, device: torch.device) -> PackedSequence:
        """Return torch's PackedSequence of the cells on a device."""
        return self.pack(torch.from_numpy(self.cells.reshape(-1).astype(np.int64)).to(device))

    def keep(self, kept: np.ndarray) -> TorchRows:
        """Return some of the rows, given in rising order."""
        lengths, order = self.lengths[kept], self.order[kept]
        if self.batch_sizes is None:
            return TorchRows(self.cells[kept], lengths, order)
        batch = PackedBatch(self.cells, self.batch_sizes, self.lengths)
        return replace(
            _take_packed(pack_sequence([batch.row(row) for row in kept.tolist()])), order=order
        )


def to_torch_rows(batch: Batch) -> TorchRows:
    """Return a batch as torch's functions take it."""
    return _TAKE[type(batch)](batch)


def _take_packed(batch: PackedBatch) -> TorchRows:
    return TorchRows(batch.data, batch.lengths, np.arange(len(batch.lengths)), batch.batch_sizes)


def _take_padded(batch: PaddedBatch) -> TorchRows:
    batch = batch.without_filler()
    ids, lengths = batch.ids, batch.lengths
    if batch.padding_side == "left":
        ids = pad_sequence(batch.rows(), total_length=ids.shape[1]).ids
    if (lengths[1:] <= lengths[:-1]).all():
        return TorchRows(ids, lengths, np.arange(len(lengths)))
    order = np.argsort(-lengths, kind="stable")
    return TorchRows(ids[order], lengths[order], order)


def _take_shared(batch: Batch) -> TorchRows:
    order = np.argsort(-batch.lengths, kind="stable")
    rows = batch.rows()
    return replace(_take_packed(pack_sequence([rows[row] for row in order])), order=order)


_TAKE: dict[type[Any], Callable[[Any], TorchRows]] = {
    PackedBatch: _take_packed,
    PaddedBatch: _take_padded,
    VarlenBatch: _take_shared,
    StreamsBatch: _take_shared,
}
