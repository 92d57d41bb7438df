"""Blocks of a shard: every token once, and beside it what the token store has for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import KINDS, NAME, Kind, draw_shard, make_shard_in_memory, make_store_in_memory
from shard_reference import join_batches, lay_out, make_shards

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.store import TokenStore, open_store
from seqpack_cli.verification.integers.blocks import (
    NO_ID,
    Block,
    BlockSpan,
    Stack,
    cut_blocks,
    read_block,
)

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
max_cells = st.one_of(st.integers(1, 60), st.just(1 << 18))


def read_blocks(
    shard: Shard, store: TokenStore, max_cells: int, piece_length: int | None
) -> list[Block]:
    spans = cut_blocks(shard, max_cells=max_cells)
    return [read_block(shard, store, span, piece_length=piece_length) for span in spans]


def with_cell_numbers(shard: Shard) -> Shard:
    """Let every cell of the data hold its own number."""
    cells = np.arange(len(shard.tensors["data"]), dtype=np.int64)
    return shard.with_tensors({**shard.tensors, "data": cells})


def list_tokens(shard: Shard) -> dict[int, tuple[int, int, int]]:
    """Return the (sequence, position in it, batch) of every cell that holds a token."""
    numbered, tokens = with_cell_numbers(shard), {}
    for index in range(len(shard)):
        batch = numbered.view(index)
        assert batch.original_indices is not None
        rows = batch.rows()
        starts = [0] * len(rows)
        if isinstance(batch, (VarlenBatch, StreamsBatch)):
            assert batch.piece_starts is not None
            starts = batch.piece_starts.tolist()
        for row, sequence, start in zip(rows, batch.original_indices, starts, strict=True):
            for step, cell in enumerate(row.tolist()):
                tokens[cell] = (int(sequence), start + step, index)
    return tokens


def split_stacks(block: Block) -> Iterator[tuple[Stack, np.ndarray, np.ndarray]]:
    """Yield each stack with its data in its shape and what is expected, [batches, B, steps]."""
    data_end = expected_end = 0
    for stack in block.stacks:
        data_start, expected_start = data_end, expected_end
        data_end += math.prod(stack.data_shape)
        expected_end += stack.num_cells
        yield (
            stack,
            block.data[data_start:data_end].reshape(stack.data_shape),
            block.expected[expected_start:expected_end].reshape(
                stack.num_batches, len(stack.lengths), stack.num_steps
            ),
        )
    assert (data_end, expected_end) == (len(block.data), len(block.expected))


def list_rows(kind: Kind, block: Block) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield (batch, cells of a row, what is expected there) of every row of a block."""
    if kind.shares_rows:
        yield block.span.first, block.data.tolist(), block.expected.tolist()
        return
    for stack, data, expected in split_stacks(block):
        lengths = stack.lengths.tolist()
        assert stack.num_steps == len(stack.batch_sizes) == max(lengths)
        alive = [sum(length > step for length in lengths) for step in range(max(lengths))]
        assert stack.batch_sizes.tolist() == alive
        assert stack.num_cells == stack.num_batches * len(lengths) * max(lengths)
        for number in range(stack.num_batches):
            for row, length in enumerate(lengths):
                if kind.layout == "packed":
                    steps = [sum(alive[:step]) + row for step in range(length)]
                    cells = data[number][steps].tolist()
                else:
                    width = data.shape[2]
                    first = width - length if kind.padding_side == "left" else 0
                    cells = data[number, row, first : first + length].tolist()
                wanted = expected[number, row].tolist()
                padding = [NO_ID] * (stack.num_steps - length)
                if kind.padding_side == "left":
                    assert wanted[: len(padding)] == padding
                    wanted = wanted[len(padding) :]
                else:
                    assert wanted[length:] == padding
                yield stack.first_batch + number, cells, wanted[:length]


@every_kind
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), max_cells=max_cells)
def test_every_token_is_in_one_block_beside_the_stores(
    kind: Kind, seed: int, max_cells: int
) -> None:
    shard, store = draw_shard(kind, seed)
    blocks = read_blocks(with_cell_numbers(shard), store, max_cells, kind.piece_length)
    tokens = list_tokens(shard)
    seen: list[int] = []
    for block in blocks:
        assert block.is_of_store
        assert block.expected.dtype == np.int32
        num_before = len(seen)
        for batch, cells, wanted in list_rows(kind, block):
            seen += cells
            places = [tokens[cell] for cell in cells]
            assert wanted == [int(store[index][step]) for index, step, _ in places]
            if not kind.shares_rows:  # whose row here is the whole block
                assert {place[2] for place in places} == {batch}
        assert block.num_tokens == len(seen) - num_before
    assert sorted(seen) == sorted(tokens)


@every_kind
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), max_cells=max_cells)
def test_blocks_go_upwards_and_are_about_as_large_as_asked(
    kind: Kind, seed: int, max_cells: int
) -> None:
    shard, _ = draw_shard(kind, seed)
    following = (0, 0)  # batch and step
    for span in cut_blocks(shard, max_cells=max_cells):
        batches = [shard.view(index) for index in range(span.first, span.last)]
        assert len(batches) == span.last - span.first > 0
        cells = [count_cells(batch) for batch in batches]
        if span.window is None:
            assert following == (span.first, 0)
            following = (span.last, 0)
            assert sum(cells[1:]) < max_cells
            assert kind.shares_rows or max(cells) <= max_cells
            continue
        start, end = span.window
        assert (span.last, following) == (span.first + 1, (span.first, start))
        assert cells[0] > max_cells
        longest = int(batches[0].lengths.max())
        assert start < end <= longest
        num_alive = int((batches[0].lengths > start).sum())
        assert (end - start) * num_alive <= max(max_cells, num_alive)
        following = (span.last, 0) if end == longest else (span.first, end)
    assert following == (len(shard), 0)


def count_cells(batch: Batch) -> int:
    if isinstance(batch, (VarlenBatch, StreamsBatch)):
        return len(batch.data)
    return len(batch.lengths) * int(batch.lengths.max())


@every_kind
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_stacks_join_neighbours_of_the_same_shape(kind: Kind, seed: int) -> None:
    shard, store = draw_shard(kind, seed, num_most=40)
    (block,) = read_blocks(shard, store, 1 << 18, kind.piece_length)
    if kind.shares_rows:
        assert block.stacks == []
        return
    shapes = []
    for index in range(len(shard)):
        batch = shard[index]
        cells = batch.ids.shape if isinstance(batch, PaddedBatch) else None
        shapes.append((batch.lengths.tolist(), cells))
    following = 0
    for stack in block.stacks:
        assert stack.first_batch == following
        following += stack.num_batches
        assert all(
            shapes[stack.first_batch] == shape for shape in shapes[stack.first_batch : following]
        )
        assert following == len(shard) or shapes[following] != shapes[following - 1]
    assert following == len(shard)


def stack_counts(shard: Shard, store: TokenStore) -> list[int]:
    (block,) = read_blocks(shard, store, 1 << 18, None)
    return [stack.num_batches for stack in block.stacks]


def test_batches_of_the_same_cells_but_other_shapes_are_apart() -> None:
    sequences = [np.full(length, 5, np.uint16) for length in (4, 4, 4, 4, 4, 4, 4, 2, 3, 3, 4, 2)]
    store = make_store_in_memory(sequences)
    kind = Kind("padded")
    for pairs, width, expected in (
        ([(0, 1), (2, 3), (4, 5)], (4, 4, 4), [3]),
        ([(0, 1), (2, 3), (4, 5)], (4, 5, 5), [1, 2]),
        ([(6, 7), (8, 9), (10, 11)], (4, 4, 4), [1, 1, 1]),  # as many tokens
        ([(0, 1), (2, 3, 4)], (6, 4), [1, 1]),  # as many cells
    ):
        batches = [
            lay_out("padded", [sequences[row] for row in rows], np.array(rows), width=cells)
            for rows, cells in zip(pairs, width, strict=True)
        ]
        shard = make_shard_in_memory(kind, join_batches("padded", batches))
        assert stack_counts(shard, store) == expected


HOSTILE = (-(2**63), -(2**62), 2**31, 2**32, 2**62, 2**63 - 1)


@every_kind
@pytest.mark.parametrize("cells", [1, 7, 1 << 18])
def test_index_beyond_the_store_is_not_of_the_store(kind: Kind, cells: int) -> None:
    shard, store = draw_shard(kind, 4)
    for value in (len(store), *(value for value in HOSTILE if value > 0)):
        assert_row_is_strange(shard, store, kind, cells, original_indices=value)


@every_kind
@pytest.mark.parametrize("cells", [1, 7, 1 << 18])
def test_row_of_another_length_is_not_of_the_store(kind: Kind, cells: int) -> None:
    shard, store = draw_shard(kind, 4)
    lengths = store.lengths.tolist()
    offsets = shard.tensors["sequence_offsets"][:-1]
    for row, index in enumerate(shard.tensors["original_indices"].tolist()):
        others = [other for other, length in enumerate(lengths) if length != lengths[index]]
        if (
            kind.splits
            or kind.piece_length is None
            or index < 0
            or not others
            or row not in offsets
        ):
            continue
        changed = shard.tensors["original_indices"].copy()
        changed[row] = others[0]
        damaged = shard.with_tensors({**shard.tensors, "original_indices": changed})
        assert_strange_where(damaged, store, kind, cells, row)


def assert_row_is_strange(
    shard: Shard, store: TokenStore, kind: Kind, cells: int, **values: int
) -> None:
    """Set entries of the first row; the blocks that have its batch are not of the store."""
    changed = dict(shard.tensors)
    for name, value in values.items():
        changed[name] = shard.tensors[name].copy()
        changed[name][0] = value
    assert_strange_where(shard.with_tensors(changed), store, kind, cells, 0)


def assert_strange_where(shard: Shard, store: TokenStore, kind: Kind, cells: int, row: int) -> None:
    batch = int(np.searchsorted(shard.tensors["sequence_offsets"], row, "right")) - 1
    blocks = read_blocks(shard, store, cells, kind.piece_length)
    assert any(not block.is_of_store for block in blocks)
    for block in blocks:
        assert block.is_of_store == (not block.span.first <= batch < block.span.last)
        if not block.is_of_store:
            assert len(block.expected) == 0


@pytest.mark.parametrize("cells", [1, 7, 1 << 18])
@pytest.mark.parametrize("name", ["varlen", "pieces"])
def test_piece_that_begins_elsewhere_is_not_of_the_store(name: str, cells: int) -> None:
    for value in (-1, 1, 13, *HOSTILE):
        kind = KINDS[name]
        shard, store = draw_shard(kind, 4)
        assert shard.tensors["piece_starts"][0] == 0
        assert shard.tensors["lengths"][0] == store.lengths[shard.tensors["original_indices"][0]]
        assert_row_is_strange(shard, store, kind, cells, piece_starts=value)


def test_piece_longer_or_shorter_than_the_split_is_not_of_the_store() -> None:
    sequence = np.arange(12, dtype=np.uint16)
    store = make_store_in_memory([sequence], num_parts=1)
    for start, length, max_tokens, expected in (
        (0, 5, 5, True),
        (5, 5, 5, True),
        (10, 2, 5, True),
        (10, 1, 5, False),
        (5, 4, 5, False),
        (5, 6, 5, False),
        (4, 5, 5, True),  # where it begins is for the level `structure`
        (0, 12, None, True),
        (0, 11, None, True),
        (2, 11, None, False),
        (12, 1, 5, False),
    ):
        ids = np.zeros(length, np.uint16)
        batch = lay_out("varlen", [ids], np.array([0]), piece_starts=np.array([start]))
        shard = make_shard_in_memory(Kind("varlen"), join_batches("varlen", [batch]))
        (block,) = read_blocks(shard, store, 1 << 18, max_tokens)
        assert block.is_of_store is expected, (start, length)


@every_kind
@pytest.mark.parametrize("value", [-1, -2, -(2**63)])
def test_negative_index_of_a_row_with_ids_is_not_of_the_store(kind: Kind, value: int) -> None:
    shard, store = draw_shard(kind, 4)
    assert_row_is_strange(shard, store, kind, 1 << 18, original_indices=value)


def test_blocks_of_no_store_have_the_cells_of_their_data() -> None:
    shard, store = draw_shard(KINDS["packed"], 4)
    changed = {**shard.tensors, "original_indices": shard.tensors["original_indices"] + len(store)}
    blocks = read_blocks(shard.with_tensors(changed), store, 9, None)
    assert sum(block.num_tokens for block in blocks) == shard.tensors["lengths"].sum()
    assert isinstance(shard[0], PackedBatch)


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_blocks_of_a_file_are_views_of_it(
    tmp_path_factory: pytest.TempPathFactory, layout: str
) -> None:
    options: dict[str, Any] = {"batch_size": None, "max_tokens": 12}
    options = options if layout == "varlen" else {}
    path = make_shards(tmp_path_factory.mktemp(layout), layout=layout, **options)
    shard = open_shards(path).open_shard(0)
    assert shard.path.name == NAME
    (block,) = read_blocks(shard, open_store(path.parent / "store"), 1 << 18, 12)
    assert block.span == BlockSpan(0, len(shard))
    assert np.shares_memory(block.data, shard.tensors["data"])
    assert (block.is_of_store, block.num_tokens) == (True, 37)
