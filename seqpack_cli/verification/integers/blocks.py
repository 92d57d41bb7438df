"""Cut shards into blocks for the round trip, and read the token store's rows for each block.

A stack is neighbouring batches with the same lengths, as most are in shards sorted by length:
torch's functions take them together, stacked in a last dimension. A batch that is too large for the
device is cut into windows of time steps instead, each of which is a packed batch again. A block is
consecutive stacks, or one window. Its ids are read and sent to the device at once: as int16 if one
16-bit value is left for padding, else as int32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqpack_cli.shards.arrays import ShardArrays
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.tokens.part_files import MAX_LENGTH
from seqpack_cli.tokens.store import Slices, TokenStore, copy_rows
from seqpack_cli.verification.integers.sorted_rows import sort_rows

NO_ID = -1  # the padding value, which no id or class has; as uint16, all bits are set


@dataclass(frozen=True)
class Stack:
    """Neighbouring batches with the same lengths, or the same window of their time steps."""

    first_batch: int  # in the shard
    num_batches: int
    lengths: np.ndarray  # int64[B], within these steps; filler rows left out
    batch_sizes: np.ndarray  # int64[steps]
    data_shape: tuple[int, ...]  # [batches, S], or [batches, rows, width] of rectangles
    padding_side: str

    @property
    def num_steps(self) -> int:
        """The number of steps of the longest row."""
        return len(self.batch_sizes)

    @property
    def num_cells(self) -> int:
        """The number of cells of rectangles as wide as the longest row."""
        return self.num_batches * len(self.lengths) * self.num_steps


@dataclass(frozen=True)
class BlockSpan:
    """A range of batches of a shard, or a window of time steps of one batch."""

    first: int  # batch in the shard
    last: int  # one past the last batch
    window: tuple[int, int] | None = None  # first step, and one past the last


@dataclass(frozen=True)
class Block:
    """The data of some batches, and the same rows read from the token store."""

    span: BlockSpan
    stacks: list[Stack]  # none for varlen, which torch's functions do not take
    data: np.ndarray  # flat int16 or int32, the data of the stacks one after another
    expected: np.ndarray  # like data, of each stack [batches, B, steps]; NO_ID where no token is
    num_tokens: int
    is_of_store: bool  # all indices and lengths match the store; else expected is empty


def cut_blocks(shard: Shard, *, max_cells: int) -> Iterator[BlockSpan]:
    """Yield the spans of blocks of about max_cells, in the order of the file."""
    table, shares_rows = shard.arrays.measure(), shard.arrays.rules.shares_rows
    # torch pads to rectangles as wide as the longest row
    cells = table.num_cells if shares_rows else table.num_rows * table.longest
    numbers = np.cumsum(cells) // max_cells
    too_large = (cells > max_cells) & (not shares_rows)
    is_first = np.append(True, (numbers[1:] != numbers[:-1]) | too_large[1:] | too_large[:-1])
    firsts = [*np.flatnonzero(is_first).tolist(), len(shard)]
    for first, last in pairwise(firsts):
        if not too_large[first]:
            yield BlockSpan(first, last)
            continue
        batch_sizes = _count_alive(shard.arrays, first)
        start = 0
        while start < len(batch_sizes):
            end = min(start + max(1, max_cells // int(batch_sizes[start])), len(batch_sizes))
            yield BlockSpan(first, last, (start, end))
            start = end


def read_block(
    shard: Shard,
    store: TokenStore,
    span: BlockSpan,
    *,
    piece_length: int | None,
    column: str | None = None,
) -> Block:
    """Read a block's data, and the token store's rows in the same shapes.

    Args:
        piece_length: of all pieces but the last where rows are shared; None: they may have any.
        column: compare this column per token, which the shard's `data` holds, not ids.
    """
    arrays = sort_rows(shard.arrays.cut(span.first, span.last))
    stacks = _find_stacks(arrays, span, shard.padding_side)
    if span.window:
        data = _cut_steps(arrays.view(0), span.window, shard.padding_side)
    else:
        data = _take_cells(arrays)
    has_free_bits = data.dtype == np.uint16 and shard.max_id < np.iinfo(np.uint16).max
    has_free_bits |= data.itemsize == 1
    dtype, bits = (np.uint16, np.int16) if has_free_bits else (np.int32, np.int32)
    data = data.astype(dtype, copy=False).view(bits)
    num_tokens = sum(stack.num_batches * int(stack.lengths.sum()) for stack in stacks) or len(data)
    is_row = arrays.tensors["lengths"] > 0  # without filler
    indices, lengths = (arrays.tensors[name][is_row] for name in ("original_indices", "lengths"))
    starts = arrays.piece_starts[is_row]
    if arrays.rules.shares_rows:
        most = lengths if piece_length is None else np.full_like(lengths, piece_length)
    else:
        most = np.full_like(lengths, MAX_LENGTH)
    if not _are_of_store(store, indices, lengths, starts, most):
        return Block(span, stacks, data, np.empty(0, bits), num_tokens, is_of_store=False)
    is_left = shard.padding_side == "left"
    if span.window is not None:
        start, end = span.window
        alive = lengths > start
        indices, whole = indices[alive], lengths[alive]
        lengths = np.minimum(whole, end) - start
        starts = whole - start - lengths if is_left else np.full_like(lengths, start)
    widths = _find_widths(stacks) if stacks else lengths
    begins = np.cumsum(widths) - (lengths if is_left else widths)
    expected = np.full(int(widths.sum()), NO_ID, bits).view(dtype)
    copy_rows(store, Slices(indices, lengths, starts), expected, begins, column=column)
    return Block(span, stacks, data, expected.view(bits), num_tokens, is_of_store=True)


def _take_cells(arrays: ShardArrays) -> np.ndarray:
    """Return the cells of batches; without padding where rows are shared."""
    data = arrays.tensors["data"]
    if not (arrays.rules.shares_rows and (arrays.has_padding or arrays.is_by_steps)):
        return data
    cells: np.ndarray = data[arrays.find_cells(np.arange(len(arrays.tensors["lengths"])))]
    return cells


def _find_widths(stacks: list[Stack]) -> np.ndarray:
    """Return the number of expected cells of each row."""
    num_rows = [stack.num_batches * len(stack.lengths) for stack in stacks]
    return np.repeat([stack.num_steps for stack in stacks], num_rows)


def _are_of_store(
    store: TokenStore,
    indices: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    most: np.ndarray,
) -> bool:
    """Return whether rows are sequences of the store, or pieces of at most some lengths."""
    if not 0 <= int(indices.min()) <= int(indices.max()) < len(store):
        return False
    left = np.minimum(store.lengths[indices] - starts, most)
    return bool((starts >= 0).all()) and np.array_equal(left, lengths)


def _find_stacks(arrays: ShardArrays, span: BlockSpan, padding_side: str) -> list[Stack]:
    if arrays.rules.shares_rows:
        return []
    firsts = [*np.flatnonzero(~_find_same_shapes(arrays)).tolist(), len(arrays)]
    stacks = []
    for first, last in pairwise(firsts):
        batch, batch_sizes = arrays.view(first), _count_alive(arrays, first)
        lengths, shape = batch.lengths[batch.lengths > 0], batch.shape
        if span.window is not None:
            start, end = span.window
            lengths = np.minimum(lengths[lengths > start], end) - start
            batch_sizes = batch_sizes[start:end]
            shape = (len(lengths), end - start) if len(shape) == 2 else (int(lengths.sum()),)
        shape = (last - first, *shape)
        number = span.first + first
        stacks.append(Stack(number, last - first, lengths, batch_sizes, shape, padding_side))
    return stacks


def _find_same_shapes(arrays: ShardArrays) -> np.ndarray:
    """Return which batches of a block have the lengths and shape of the batch before."""
    tensors = arrays.tensors
    offsets, lengths = tensors["sequence_offsets"], tensors["lengths"]
    counts, sizes = np.diff(offsets), np.diff(tensors["data_offsets"])
    is_same = np.append(False, (counts[1:] == counts[:-1]) & (sizes[1:] == sizes[:-1]))
    rows = np.arange(len(lengths))
    before = np.where(np.repeat(is_same, counts), rows - np.repeat(counts, counts), rows)
    is_equal = lengths == lengths[before]
    return is_same & np.logical_and.reduceat(is_equal, offsets[:-1])


def _count_alive(arrays: ShardArrays, batch: int) -> np.ndarray:
    """Return the batch_sizes of a batch, from the file if it has them."""
    tensors = arrays.tensors
    if "batch_sizes" in tensors:
        start, end = tensors["step_offsets"][batch : batch + 2]
        return tensors["batch_sizes"][start:end]
    lengths = np.sort(arrays.view(batch).lengths)[::-1]
    return count_alive(lengths[lengths > 0])


def _cut_steps(batch: Batch, window: tuple[int, int], padding_side: str) -> np.ndarray:
    """Return the data of a window of time steps of a batch, without filler."""
    lengths, (first, last) = batch.lengths, window
    if len(batch.shape) == 1:
        before, through = (int(np.minimum(lengths, step).sum()) for step in window)
        return batch.data[before:through]
    num_rows, width = int(np.count_nonzero(lengths > first)), batch.shape[1]
    columns = slice(width - last, width - first) if padding_side == "left" else slice(first, last)
    return batch.data.reshape(batch.shape)[:num_rows, columns].reshape(-1)
