"""Send one stack of batches through torch's functions on the device, and compare with the store.

`pad_packed_sequence` and `pack_padded_sequence`, with both values of `batch_first`, `total_length`
and `padding_value`, must return exactly the rows of the store, and packing these again exactly the
data. Neighbouring batches with the same lengths are stacked in a last dimension, which torch's
functions leave alone: a stack costs as much as one batch. All work is queued on the device before
the first result is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqpack_cli.verification.integers.blocks import NO_ID, Block, Stack

Truth = bool | torch.Tensor  # a tensor of one bool may still be computed on the device

EXTRA_STEPS = 3  # total_length is the longest length plus this


def has_right_ids(block: Block, ids: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether every stack of a block is right; waits for the device once.

    Args:
        ids, expected: data and expected of the block, on the device.
    """
    if not block.stacks:  # varlen, which torch's functions do not take
        return torch.equal(ids, expected)
    holds: list[Truth] = []
    for stack in block.stacks:
        num_ids = math.prod(stack.data_shape)
        holds += check_stack(stack, ids[:num_ids], expected[: stack.num_cells])
        ids, expected = ids[num_ids:], expected[stack.num_cells :]
    return all_hold(holds)


def all_hold(holds: list[Truth]) -> bool:
    """Return whether all are true; values on a device are fetched together."""
    on_device = [hold for hold in holds if isinstance(hold, torch.Tensor)]
    return all(hold for hold in holds if isinstance(hold, bool)) and bool(
        not on_device or torch.stack(on_device).all()
    )


def check_stack(stack: Stack, data: torch.Tensor, expected: torch.Tensor) -> Iterator[Truth]:
    """Yield truth values, all of them true if the data of a stack is right.

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
    yield _are_same(cells[:, :, : stack.num_steps], expected)
    sequence = pack_padded_sequence(_put_batches_last(rectangle), lengths, batch_first=True)
    yield from _check(stack, sequence, expected)


def _check(stack: Stack, packed: PackedSequence, expected: torch.Tensor) -> Iterator[Truth]:
    """Pad and pack again, with both values of batch_first.

    Args:
        expected: [batches, B, steps].
    """
    lengths = torch.from_numpy(stack.lengths.copy())
    num_steps, total_length = stack.num_steps, stack.num_steps + EXTRA_STEPS
    wanted = expected[0].t() if stack.num_batches == 1 else expected.permute(2, 1, 0)
    wanted = wanted.contiguous()  # the memory layout of torch's results
    rows, found_lengths = pad_packed_sequence(
        packed, batch_first=True, padding_value=NO_ID, total_length=total_length
    )
    yield torch.equal(found_lengths, lengths)
    by_step = rows.transpose(0, 1)
    yield len(by_step) == total_length
    yield _are_same(by_step[:num_steps], wanted)
    yield (by_step[num_steps:] == NO_ID).all()
    steps, found_lengths = pad_packed_sequence(packed, padding_value=NO_ID)
    yield torch.equal(found_lengths, lengths)
    yield _are_same(steps, wanted)
    for padded, batch_first in ((rows, True), (steps, False)):
        again = pack_padded_sequence(padded, lengths, batch_first)
        yield _are_same(again.data, packed.data)
        yield torch.equal(again.batch_sizes, packed.batch_sizes)


def _are_same(first: torch.Tensor, second: torch.Tensor) -> Truth:
    """Compare tensors: on a GPU without waiting, on a CPU by numpy, in a third of torch's time."""
    if first.shape != second.shape:
        return False
    if first.is_cuda:
        return (first == second).all()
    if first.is_contiguous() and second.is_contiguous():
        return np.array_equal(first.numpy(), second.numpy())
    return torch.equal(first, second)


def _put_batches_last(batches: torch.Tensor) -> torch.Tensor:
    """Move the first dimension behind the others, or drop it if there is one batch."""
    if len(batches) == 1:
        return batches[0]
    return batches.movedim(0, -1).contiguous()
