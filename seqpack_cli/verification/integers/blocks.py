"""Shards cut into blocks for the round trip, each with what the token store has for it.

A stack is neighbouring batches with the same lengths, as most are in shards sorted by length:
torch's functions take them together, one beside the other in a last dimension. A batch too large
for the device is cut into windows of its time steps instead, which are packed batches again. A
block is consecutive stacks, or one window; its ids are read and moved to the device at once, as
int16 where the bits of an id leave one pattern free for padding, else as int32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.tokens.indexed_dataset import MAX_LENGTH
from seqpack_cli.tokens.read_rows import copy_rows
from seqpack_cli.tokens.token_store import TokenStore

NO_ID = -1  # fills what torch pads, so that no id can be taken for padding; of uint16, all bits


@dataclass(frozen=True)
class Stack:
    """The same steps of neighbouring batches with the same lengths; varlen has none."""

    first_batch: int  # in the shard
    num_batches: int
    lengths: np.ndarray  # int64[B], within these steps; filler rows left out
    num_steps: int
    batch_sizes: np.ndarray  # int64[steps]
    data_shape: tuple[int, ...]  # [batches, S], of padded [batches, rows, width]

    @property
    def num_cells(self) -> int:
        """Count the cells of rectangles as wide as the longest row."""
        return self.num_batches * len(self.lengths) * self.num_steps


@dataclass(frozen=True)
class BlockPlan:
    """Batches of a shard, or one of them from one time step to another."""

    first: int  # batch in the shard
    last: int  # the first that follows
    window: tuple[int, int] | None = None  # steps


@dataclass(frozen=True)
class Block:
    """Batches as the shard has them, and their rows as the token store has them."""

    plan: BlockPlan
    stacks: list[Stack]
    data: np.ndarray  # flat int16 or int32, the data of the stacks one after another
    expected: np.ndarray  # like data, of each stack [batches, B, steps]; NO_ID where no token is
    num_tokens: int
    is_of_store: bool  # all indices and lengths are the store's; else expected is empty


def cut_blocks(shard: Shard, *, max_cells: int) -> Iterator[BlockPlan]:
    """Cut a sound shard into blocks of about max_cells, upwards through the file."""
    tensors = shard.tensors
    num_rows = np.diff(tensors["sequence_offsets"])
    longest = np.maximum.reduceat(tensors["lengths"], tensors["sequence_offsets"][:-1])
    cells = num_rows * longest
    if shard.layout == "varlen":
        cells = np.diff(tensors["data_offsets"])
    numbers = np.cumsum(cells) // max_cells
    too_large = (cells > max_cells) & (shard.layout != "varlen")
    is_first = np.append(True, (numbers[1:] != numbers[:-1]) | too_large[1:] | too_large[:-1])
    firsts = [*np.flatnonzero(is_first).tolist(), len(shard)]
    for first, last in pairwise(firsts):
        if not too_large[first]:
            yield BlockPlan(first, last)
            continue
        batch_sizes = _count_alive(shard, first)
        start = 0
        while start < len(batch_sizes):
            end = min(start + max(1, max_cells // int(batch_sizes[start])), len(batch_sizes))
            yield BlockPlan(first, last, (start, end))
            start = end


def read_block(
    shard: Shard, store: TokenStore, plan: BlockPlan, *, max_tokens: int | None
) -> Block:
    """Read a block's data, and the rows of the token store in the same shapes.

    Args:
        max_tokens: where varlen splits a sequence.
    """
    stacks = _find_stacks(shard, plan)
    tensors = shard.tensors
    rows = slice(*tensors["sequence_offsets"][[plan.first, plan.last]].tolist())
    indices, lengths = tensors["original_indices"][rows], tensors["lengths"][rows]
    is_row = lengths > 0  # not filler
    indices, lengths = indices[is_row], lengths[is_row]
    starts = np.zeros_like(lengths)
    if shard.layout == "varlen":
        starts = tensors["piece_starts"][rows]
    data = _read_data(shard, plan, stacks)
    has_free_bits = data.dtype == np.uint16 and shard.max_id < np.iinfo(np.uint16).max
    dtype, bits = (np.uint16, np.int16) if has_free_bits else (np.int32, np.int32)
    data = data.astype(dtype, copy=False).view(bits)
    max_piece = max_tokens if shard.layout == "varlen" else None
    num_tokens = sum(stack.num_batches * int(stack.lengths.sum()) for stack in stacks) or len(data)
    if not _are_of_store(store, indices, lengths, starts, max_piece):
        return Block(plan, stacks, data, np.empty(0, bits), num_tokens, is_of_store=False)
    is_left = shard.padding_side == "left"
    if plan.window is not None:
        start, end = plan.window
        alive = lengths > start
        indices, whole = indices[alive], lengths[alive]
        lengths = np.minimum(whole, end) - start
        starts = whole - start - lengths if is_left else np.full_like(lengths, start)
    if shard.layout == "varlen":
        begins = np.cumsum(lengths) - lengths
        expected = np.empty(int(lengths.sum()), dtype)
    else:
        num_rows = [stack.num_batches * len(stack.lengths) for stack in stacks]
        widths = np.repeat([stack.num_steps for stack in stacks], num_rows)
        begins = np.cumsum(widths) - widths
        begins = begins + widths - lengths if is_left else begins
        expected = np.full(int(widths.sum()), NO_ID, bits).view(dtype)
    copy_rows(store, indices, lengths, expected, begins, starts)
    return Block(plan, stacks, data, expected.view(bits), num_tokens, is_of_store=True)


def _are_of_store(
    store: TokenStore,
    indices: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    max_piece: int | None,
) -> bool:
    if not 0 <= int(indices.min()) <= int(indices.max()) < len(store):
        return False
    left = store.lengths[indices] - starts
    if max_piece is not None:
        left = np.minimum(
            left, max(0, min(max_piece, MAX_LENGTH))
        )  # a stranger's may be beyond int64
    return bool((starts >= 0).all()) and np.array_equal(left, lengths)


def _find_stacks(shard: Shard, plan: BlockPlan) -> list[Stack]:
    tensors = shard.tensors
    offsets = tensors["sequence_offsets"][plan.first : plan.last + 1]
    fillers = tensors.get("num_filler_rows", np.zeros(len(shard), np.int64))
    num_rows = np.diff(offsets)
    if shard.layout == "varlen":
        return []
    is_same = np.zeros(len(num_rows), bool)
    if plan.last > plan.first + 1:
        is_same = _find_same_shapes(shard, plan)
    firsts = [*np.flatnonzero(~is_same).tolist(), len(num_rows)]
    stacks = []
    for first, last in pairwise(firsts):
        batch = plan.first + first
        count = int(num_rows[first])
        lengths = tensors["lengths"][offsets[first] : offsets[first + 1] - fillers[batch]]
        batch_sizes = _count_alive(shard, batch)
        width = int(np.diff(tensors["data_offsets"][batch : batch + 2])[0])
        shape: tuple[int, ...] = (last - first, width)
        if shard.layout == "padded":
            shape = (last - first, count, width // count)
        if plan.window is not None:
            start, end = plan.window
            lengths = np.minimum(lengths[lengths > start], end) - start
            batch_sizes = batch_sizes[start:end]
            shape = (1, len(lengths), end - start) if len(shape) == 3 else (1, int(lengths.sum()))
        stacks.append(Stack(batch, last - first, lengths, len(batch_sizes), batch_sizes, shape))
    return stacks


def _find_same_shapes(shard: Shard, plan: BlockPlan) -> np.ndarray:
    """Find the batches of a block whose lengths and shape are those of the one before."""
    tensors = shard.tensors
    batches = slice(plan.first, plan.last)
    offsets = tensors["sequence_offsets"][plan.first : plan.last + 1]
    counts, sizes = np.diff(offsets), np.diff(tensors["data_offsets"])[batches]
    is_same = np.append(False, (counts[1:] == counts[:-1]) & (sizes[1:] == sizes[:-1]))
    lengths = tensors["lengths"][offsets[0] : offsets[-1]]
    rows = np.arange(len(lengths))
    before = np.where(np.repeat(is_same, counts), rows - np.repeat(counts, counts), rows)
    is_equal = lengths == lengths[before]
    return is_same & np.logical_and.reduceat(is_equal, offsets[:-1] - offsets[0])


def _count_alive(shard: Shard, batch: int) -> np.ndarray:
    """Give the batch_sizes of a batch, those of the file where it has any."""
    tensors = shard.tensors
    if shard.layout == "packed":
        start, end = tensors["step_offsets"][batch : batch + 2]
        return tensors["batch_sizes"][start:end]
    start, end = tensors["sequence_offsets"][batch : batch + 2]
    lengths = tensors["lengths"][start:end]
    return count_alive(lengths[lengths > 0])


def _read_data(shard: Shard, plan: BlockPlan, stacks: list[Stack]) -> np.ndarray:
    start, end = shard.tensors["data_offsets"][[plan.first, plan.last]].tolist()
    data: np.ndarray = shard.tensors["data"][start:end]
    if plan.window is None:
        return data
    if shard.layout == "packed":
        rows = slice(*shard.tensors["sequence_offsets"][[plan.first, plan.last]].tolist())
        lengths = shard.tensors["lengths"][rows]
        before, through = (int(np.minimum(lengths, step).sum()) for step in plan.window)
        return data[before:through]
    num_rows = int(np.diff(shard.tensors["sequence_offsets"][plan.first : plan.first + 2])[0])
    rectangle = data.reshape(num_rows, -1)
    first, last = plan.window
    columns = slice(first, last)
    if shard.padding_side == "left":
        width = rectangle.shape[1]
        columns = slice(width - last, width - first)
    return rectangle[: len(stacks[0].lengths), columns].reshape(-1)
