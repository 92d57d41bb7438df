"""A batch on the device, in the shapes that a model takes, cut to a window where it is too large.

Consecutive time steps of a packed batch are a packed batch again: the rows still alive there, some
of which end inside. Of a batch that is too large, the window in which most rows end is taken,
since the ends are what packing is about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.pack_and_pad import pack, pad
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.shards.varlen import VarlenBatch

CELLS_PER_TOKEN = 4
# cuDNN refuses a longer LSTM; on a CPU each step costs about 0.3 ms in all ways together.
MAX_STEPS = {"cuda": 65_535, "cpu": 1_024}
# torch's packed backward on a CPU takes time by steps x tokens: 2**18 of them about 0.1 s.
MAX_CPU_BACKWARD_WORK = 1 << 18
MAX_ROWS = 1_024  # each is run alone too, at about 0.2 ms
MAX_PADDING_COLUMNS = 64  # behind the longest row: more of them show nothing


@dataclass(frozen=True)
class SizeLimits:
    """How much of a batch is computed."""

    max_tokens: int  # the rectangle may have CELLS_PER_TOKEN times as many cells
    max_steps: int
    max_work: int | None = None  # steps x tokens; None is no limit


@dataclass(frozen=True)
class BatchIds:
    """One batch, or a window of it."""

    packed: PackedSequence  # int64 ids
    rectangle: torch.Tensor  # int64[B, width]
    lengths: torch.Tensor  # int64[B], on the CPU
    row_order: torch.Tensor  # int64[S]: where in packed.data each token lies, row after row
    row_numbers: np.ndarray  # int64[B], the rows in the shard's batch
    was_cut: bool

    @property
    def mask(self) -> torch.Tensor:
        """True where a cell of the rectangle holds a token, bool[B, width]."""
        width = self.rectangle.shape[1]
        return (torch.arange(width) < self.lengths[:, None]).to(self.rectangle.device)


def choose_limits(level: str, device: torch.device, *, max_tokens: int) -> SizeLimits:
    """Give how much of a batch a level computes on a device."""
    slow = level == "backward" and device.type == "cpu"
    return SizeLimits(max_tokens, MAX_STEPS[device.type], MAX_CPU_BACKWARD_WORK if slow else None)


def to_torch_rows(batch: Batch) -> tuple[PackedBatch | PaddedBatch, np.ndarray]:
    """Give a batch as torch's functions take it: longest row first, none empty, right-padded.

    Returns:
        The batch, and for each of its rows the row of the batch that came in, int64[B].
    """
    if isinstance(batch, VarlenBatch):
        order = np.argsort(-batch.lengths, kind="stable")
        rows = batch.rows()
        return pack([rows[row] for row in order]), order
    if isinstance(batch, PaddedBatch):
        batch = batch.without_filler()
        if batch.padding_side == "left":
            batch = pad(batch.rows(), width=batch.ids.shape[1])
    assert isinstance(batch, PackedBatch | PaddedBatch)  # noqa: S101
    return batch, np.arange(len(batch.lengths))


def to_packed_sequence(batch: PackedBatch | PaddedBatch, device: torch.device) -> PackedSequence:
    """Make torch's PackedSequence of a batch, from its own data or from its rectangle."""
    cells = batch.data if isinstance(batch, PackedBatch) else batch.ids.reshape(-1)
    return pack_ids(batch, torch.from_numpy(cells.astype(np.int64)).to(device))


def pack_ids(batch: PackedBatch | PaddedBatch, ids: torch.Tensor) -> PackedSequence:
    """Make torch's PackedSequence of a batch whose cells are on the device, flat."""
    if isinstance(batch, PackedBatch):
        return PackedSequence(ids, torch.from_numpy(batch.batch_sizes.copy()), None, None)
    lengths = torch.from_numpy(batch.lengths.copy())
    return pack_padded_sequence(ids.view(batch.ids.shape), lengths, batch_first=True)


def take_ids(found: Batch, device: torch.device, limits: SizeLimits) -> BatchIds:
    """Put a batch, or the window of it that the limits allow, on the device."""
    batch, row_numbers = to_torch_rows(found)
    was_thinned = len(batch.lengths) > MAX_ROWS
    if was_thinned:
        rows = np.linspace(0, len(batch.lengths) - 1, MAX_ROWS).astype(np.int64)
        batch, row_numbers = _keep_rows(batch, rows), row_numbers[rows]
    whole = to_packed_sequence(batch, device)
    batch_sizes = count_alive(batch.lengths)
    start, end = choose_window(batch_sizes, limits)
    offsets = to_offsets(batch_sizes)
    kept = torch.from_numpy(batch_sizes[start:end])
    packed = PackedSequence(whole.data[offsets[start] : offsets[end]], kept, None, None)
    num_rows = int(batch_sizes[start])
    lengths = torch.from_numpy(np.minimum(batch.lengths[:num_rows], end) - start)
    if isinstance(batch, PackedBatch):
        rectangle, _ = pad_packed_sequence(packed, batch_first=True)
    else:
        width = end
        if end == len(batch_sizes):
            width = min(batch.ids.shape[1], end + MAX_PADDING_COLUMNS)
        cells = batch.ids[:num_rows, start:width].astype(np.int64)
        rectangle = torch.from_numpy(cells).to(device)
    was_cut = was_thinned or end - start < len(batch_sizes)
    row_order = order_rows(kept).to(device)
    return BatchIds(packed, rectangle, lengths, row_order, row_numbers[:num_rows], was_cut)


def _keep_rows(batch: PackedBatch | PaddedBatch, kept: np.ndarray) -> PackedBatch | PaddedBatch:
    """Keep some rows, given upwards, of a batch that torch takes."""
    if isinstance(batch, PackedBatch):
        return pack([batch.row(row) for row in kept.tolist()])
    return PaddedBatch(batch.ids[kept], batch.lengths[kept])


def choose_window(batch_sizes: np.ndarray, limits: SizeLimits) -> tuple[int, int]:
    """Give the first and the end step of the largest window in which most rows end before others.

    >>> choose_window(np.array([2, 2, 2, 1, 1]), SizeLimits(max_tokens=4, max_steps=9))
    (2, 4)
    """
    num_steps, num_rows = len(batch_sizes), int(batch_sizes[0])
    num_tokens = int(batch_sizes.sum())
    fits = num_tokens <= limits.max_tokens and num_steps <= limits.max_steps
    fits &= num_rows * num_steps <= CELLS_PER_TOKEN * limits.max_tokens
    if fits and (limits.max_work is None or num_steps * num_tokens <= limits.max_work):
        return 0, num_steps
    width = min(limits.max_tokens // num_rows, limits.max_steps, num_steps)
    if limits.max_work is not None:
        width = min(width, math.isqrt(limits.max_work // num_rows))
    width = max(width, 1)
    last = batch_sizes[width - 1 :]  # rows that are alive at the last step of each window
    num_ended = batch_sizes[: len(last)] - last
    start = int(num_ended.argmax())
    return start, start + width


def order_rows(batch_sizes: torch.Tensor) -> torch.Tensor:
    """Give where each token lies in packed data, row after row, int64[S].

    >>> order_rows(torch.tensor([2, 1, 1])).tolist()
    [0, 2, 3, 1]
    """
    starts = batch_sizes.cumsum(0) - batch_sizes
    steps = torch.repeat_interleave(torch.arange(len(batch_sizes)), batch_sizes)
    rows = torch.arange(int(batch_sizes.sum())) - starts[steps]
    # sorted by row and, as the sort is stable, by step within a row
    return torch.sort(rows, stable=True).indices
