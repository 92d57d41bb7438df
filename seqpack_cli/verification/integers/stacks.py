"""Send one stack of batches through torch's functions on the device, and compare with the store.

`pad_packed_sequence` and `pack_padded_sequence`, with both values of `batch_first`, `total_length`
and `padding_value`, must return exactly the rows of the store, and packing these again exactly the
data. Neighbouring batches with the same lengths are stacked in a last dimension, which torch's
functions leave alone: a stack costs as much as one batch. What they return for the stacks of a
block is compared at the end: small tensors together, so that a comparison costs little, and on a
GPU all work is queued before the first result is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqpack_cli.limits import LIMITS
from seqpack_cli.verification.integers.blocks import NO_ID, Block, Stack

Pair = tuple[torch.Tensor, torch.Tensor]  # found and expected, which must be the same

EXTRA_STEPS = 3  # total_length is the longest length plus this


def has_right_ids(block: Block, ids: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether every stack of a block is right; waits for the device once.

    Args:
        ids, expected: data and expected of the block, on the device.
    """
    if not block.stacks:  # varlen, which torch's functions do not take
        return torch.equal(ids, expected)
    pairs: list[Pair] = []
    for stack in block.stacks:
        num_ids = math.prod(stack.data_shape)
        pairs += check_stack(stack, ids[:num_ids], expected[: stack.num_cells])
        ids, expected = ids[num_ids:], expected[stack.num_cells :]
    return are_same(pairs)


def are_same(pairs: Iterable[Pair]) -> bool:
    """Return whether the tensors of every pair have the same shape, type and values."""
    joined: dict[tuple[torch.dtype, torch.device], list[Pair]] = {}
    holds: list[torch.Tensor] = []
    large = LIMITS.large_tensor
    for first, second in pairs:
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        if first.numel() < large:
            joined.setdefault((first.dtype, first.device), []).append((first, second))
        elif not _is_same(first, second, holds.append):
            return False
    for small in joined.values():
        found, expected = (
            torch.cat([each.reshape(-1) for each in it]) for it in zip(*small, strict=True)
        )
        if not _is_same(found, expected, holds.append):
            return False
    return bool(not holds or torch.stack(holds).all())


def check_stack(stack: Stack, data: torch.Tensor, expected: torch.Tensor) -> Iterator[Pair]:
    """Yield pairs of tensors, all of them the same if the data of a stack is right.

    Left padding is checked as right padding of reversed rows.

    Args:
        data: the stack's ids, flat.
        expected: the token store's ids, flat, as in Block.
    """
    batches = data.view(stack.data_shape)
    expected = expected.view(stack.num_batches, len(stack.lengths), stack.num_steps)
    if batches.dim() == 2:  # time step by time step
        batch_sizes = torch.from_numpy(stack.batch_sizes.copy())
        sequence = PackedSequence(_put_batches_last(batches), batch_sizes, None, None)
        yield from _check(stack, sequence, expected)
        return
    rectangle = batches[:, : len(stack.lengths)]
    if stack.padding_side == "left":
        rectangle, expected = rectangle.flip(2), expected.flip(2)
    lengths = torch.from_numpy(stack.lengths.copy())
    mask = torch.arange(rectangle.shape[2]) < lengths[:, None]
    cells = rectangle.masked_fill(~mask.to(rectangle.device, non_blocking=True), NO_ID)
    yield cells[:, :, : stack.num_steps], expected
    sequence = pack_padded_sequence(_put_batches_last(rectangle), lengths, batch_first=True)
    yield from _check(stack, sequence, expected)


def _check(stack: Stack, packed: PackedSequence, expected: torch.Tensor) -> Iterator[Pair]:
    """Pad and pack again, with both values of batch_first.

    Args:
        expected: [batches, B, steps].
    """
    lengths = torch.from_numpy(stack.lengths.copy())
    num_steps, total_length = stack.num_steps, stack.num_steps + EXTRA_STEPS
    by_step = expected[0].t() if stack.num_batches == 1 else expected.permute(2, 1, 0)
    # in the memory layout of torch's results
    wanted = by_step.new_full((total_length, *by_step.shape[1:]), NO_ID)
    wanted[:num_steps] = by_step
    rows, found_lengths = pad_packed_sequence(
        packed, batch_first=True, padding_value=NO_ID, total_length=total_length
    )
    yield found_lengths, lengths
    yield rows.transpose(0, 1), wanted
    steps, found_lengths = pad_packed_sequence(packed, padding_value=NO_ID)
    yield found_lengths, lengths
    yield steps, wanted[:num_steps]
    for padded, batch_first in ((rows, True), (steps, False)):
        again = pack_padded_sequence(padded, lengths, batch_first)
        yield again.data, packed.data
        yield again.batch_sizes, packed.batch_sizes


def _is_same(
    first: torch.Tensor, second: torch.Tensor, on_device: Callable[[torch.Tensor], None]
) -> bool:
    """Compare tensors of one shape; the answer of a GPU is handed on without waiting for it."""
    if first.is_cuda:
        on_device((first == second).all())
        return True
    if first.is_contiguous() and second.is_contiguous():  # a third of torch's time
        return np.array_equal(first.numpy(), second.numpy())
    return torch.equal(first, second)


def _put_batches_last(batches: torch.Tensor) -> torch.Tensor:
    """Move the first dimension behind the others, or drop it if there is one batch."""
    if len(batches) == 1:
        return batches[0]
    return batches.movedim(0, -1).contiguous()
