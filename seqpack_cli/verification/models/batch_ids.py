"""Put a batch on the device in the shapes that models take, cut to a window if it is too large.

Consecutive time steps of a packed batch are a packed batch again. From a batch that is too large,
the window in which most rows end is taken, since the ends of rows are where packing could go wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.verification.torch_rows import to_torch_rows

CELLS_PER_TOKEN = 4
# cuDNN refuses longer sequences; on a CPU each step takes about 0.3 ms in all ways together.
MAX_STEPS = {"cuda": 65_535, "cpu": 1_024}
# The float64 loop starts about 12 kernels a step, in each layer and direction: on a GPU about
# 0.13 ms forward and 0.4 ms with gradients, reckoned from their number and not measured.
MAX_LOOP_STEPS = {"forward": 4_096, "backward": 2_048}
# torch's packed backward on a CPU takes time by steps x tokens: 2**18 of them about 0.1 s.
MAX_CPU_BACKWARD_WORK = 1 << 18
MAX_ROWS = 1_024  # each row is also run alone, which takes about 0.2 ms
MAX_PADDING_COLUMNS = 64  # after the longest row: more would not test more


@dataclass(frozen=True)
class SizeLimits:
    """The limits of the part of a batch that is computed."""

    max_tokens: int  # and CELLS_PER_TOKEN times as many cells of the rectangle
    max_steps: int
    max_work: int | None = None  # steps x tokens; None is no limit


@dataclass(frozen=True)
class BatchIds:
    """One batch, or a window of it."""

    packed: PackedSequence  # int64 ids
    rectangle: torch.Tensor  # int64[B, width]
    lengths: torch.Tensor  # int64[B], on the CPU
    row_order: torch.Tensor  # int64[S]: the place in packed.data of each token, row after row
    row_numbers: np.ndarray  # int64[B], each row's number in the shard's batch
    was_cut: bool

    @property
    def mask(self) -> torch.Tensor:
        """bool[B, width], True where a cell of the rectangle holds a token."""
        width = self.rectangle.shape[1]
        return (torch.arange(width) < self.lengths[:, None]).to(self.rectangle.device)


def choose_limits(level: str, device: torch.device, *, max_tokens: int) -> SizeLimits:
    """Return the limits of what a level computes on a device."""
    slow = level == "backward" and device.type == "cpu"
    max_steps = min(MAX_STEPS[device.type], MAX_LOOP_STEPS[level])
    return SizeLimits(max_tokens, max_steps, MAX_CPU_BACKWARD_WORK if slow else None)


def take_ids(batch: Batch, device: torch.device, limits: SizeLimits) -> BatchIds:
    """Put a batch, or as large a window of it as the limits allow, on the device."""
    rows = to_torch_rows(batch)
    was_thinned = len(rows.lengths) > MAX_ROWS
    if was_thinned:
        rows = rows.keep(np.linspace(0, len(rows.lengths) - 1, MAX_ROWS).astype(np.int64))
    whole = rows.to_packed_sequence(device)
    batch_sizes = count_alive(rows.lengths)
    start, end = choose_window(batch_sizes, limits)
    offsets = to_offsets(batch_sizes)
    kept = torch.from_numpy(batch_sizes[start:end])
    packed = PackedSequence(whole.data[offsets[start] : offsets[end]], kept, None, None)
    num_rows = int(batch_sizes[start])
    if rows.batch_sizes is not None:
        rectangle, _ = pad_packed_sequence(packed, batch_first=True)
    else:
        width = end if end < len(batch_sizes) else end + MAX_PADDING_COLUMNS
        cells = rows.cells[:num_rows, start:width].astype(np.int64)
        rectangle = torch.from_numpy(cells).to(device)
    return BatchIds(
        packed,
        rectangle,
        lengths=torch.from_numpy(np.minimum(rows.lengths[:num_rows], end) - start),
        row_order=order_rows(kept).to(device),
        row_numbers=rows.order[:num_rows],
        was_cut=was_thinned or end - start < len(batch_sizes),
    )


def choose_window(batch_sizes: np.ndarray, limits: SizeLimits) -> tuple[int, int]:
    """Return start and end of the largest window of steps, where most rows end before others.

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
    """Return the place of each token in packed data, row after row, int64[S].

    >>> order_rows(torch.tensor([2, 1, 1])).tolist()
    [0, 2, 3, 1]
    """
    starts = batch_sizes.cumsum(0) - batch_sizes
    steps = torch.repeat_interleave(torch.arange(len(batch_sizes)), batch_sizes)
    rows = torch.arange(int(batch_sizes.sum())) - starts[steps]
    # sorted by row and, as the sort is stable, by step within a row
    return torch.sort(rows, stable=True).indices
