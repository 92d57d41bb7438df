"""Stacks through torch's functions: right ids give only true, one changed id never does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from random_shards import KINDS, Kind, draw_shard, make_shard_in_memory, make_store_in_memory
from shard_reference import join_batches, lay_out
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.integers import stacks
from seqpack_cli.verification.integers.blocks import NO_ID, Stack, cut_blocks, read_block
from seqpack_cli.verification.integers.stacks import are_same, check_stack

TORCH_KINDS = {name: kind for name, kind in KINDS.items() if not kind.shares_rows}
every_kind = pytest.mark.parametrize("kind", TORCH_KINDS.values(), ids=TORCH_KINDS)

Case = tuple[Stack, torch.Tensor, torch.Tensor]


def iter_stacks(shard: Shard, store: TokenStore, max_cells: int) -> Iterator[Case]:
    """Yield each stack of a shard with its data and what is expected, flat int32."""
    for span in cut_blocks(shard, max_cells=max_cells):
        block = read_block(shard, store, span, piece_length=None)
        assert block.is_of_store
        data, expected = (
            torch.from_numpy(array.astype(np.int32)) for array in (block.data, block.expected)
        )
        for stack in block.stacks:
            size = int(np.prod(stack.data_shape))
            yield stack, data[:size], expected[: stack.num_cells]
            data, expected = data[size:], expected[stack.num_cells :]


def holds(stack: Stack, data: torch.Tensor, expected: torch.Tensor) -> bool:
    return are_same(check_stack(stack, data, expected))


def find_token_cells(kind: Kind, stack: Stack) -> list[int]:
    """Return the places in a stack's flat data that hold a token."""
    cells = np.arange(int(np.prod(stack.data_shape))).reshape(stack.data_shape)
    if kind.layout == "packed":
        return [int(cell) for cell in cells.flat]
    width = stack.data_shape[2]
    return [
        int(cells[batch, row, width - 1 - step if kind.padding_side == "left" else step])
        for batch in range(stack.num_batches)
        for row, length in enumerate(stack.lengths.tolist())
        for step in range(length)
    ]


@every_kind
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_cells", [1, 5, 12, 30, 1 << 18])
def test_right_ids_give_only_true(kind: Kind, seed: int, max_cells: int) -> None:
    shard, store = draw_shard(kind, seed)
    for stack, data, expected in iter_stacks(shard, store, max_cells):
        assert holds(stack, data, expected)


@every_kind
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_cells", [3, 9, 1 << 18])
def test_every_changed_id_is_found(kind: Kind, seed: int, max_cells: int) -> None:
    shard, store = draw_shard(kind, seed, num_most=8)
    for stack, data, expected in iter_stacks(shard, store, max_cells):
        for cell in find_token_cells(kind, stack):
            changed = data.clone()
            changed[cell] = changed[cell] + 1 if seed % 2 else changed[cell] ^ 0x8000
            assert not holds(stack, changed, expected)
        for cell in range(len(expected)):
            changed = expected.clone()
            changed[cell] = (
                0 if changed[cell] == NO_ID else NO_ID if seed % 3 else changed[cell] + 1
            )
            assert not holds(stack, data, changed)


def make_case(kind: Kind, rows: list[tuple[int, ...]], *, max_cells: int = 1 << 18) -> list[Case]:
    """Return the stacks of batches whose rows have these lengths, all ids different."""
    count = sum(map(len, rows))
    ids = np.arange(13 * count).astype(np.uint16) + 100
    sequences, batches, index = [], [], 0
    for lengths in rows:
        parts = [ids[13 * (index + row) :][:length] for row, length in enumerate(lengths)]
        indices = np.arange(index, index + len(parts))
        sequences += parts
        index += len(parts)
        width = max(lengths) + 2
        batches.append(
            lay_out(kind.layout, parts, indices, width=width, padding_side=kind.padding_side)
        )
    shard = make_shard_in_memory(kind, join_batches(kind.layout, batches))
    return [*iter_stacks(shard, make_store_in_memory(sequences), max_cells)]


@pytest.mark.parametrize("kind", [Kind("packed"), Kind("padded"), Kind("padded", "left")], ids=str)
@pytest.mark.parametrize("num_batches", [2, 3, 5])
@pytest.mark.parametrize("lengths", [(4, 2, 1), (3, 3), (1,), (5,)], ids=str)
def test_every_changed_or_swapped_id_of_a_stack_is_found(
    kind: Kind, num_batches: int, lengths: tuple[int, ...]
) -> None:
    ((stack, data, expected),) = make_case(kind, [lengths] * num_batches)
    assert stack.num_batches == num_batches
    assert holds(stack, data, expected)
    cells = find_token_cells(kind, stack)
    assert len(cells) == num_batches * sum(lengths)
    for cell, other in zip(cells, [*cells[1:], cells[0]], strict=True):
        changed = data.clone()
        changed[[cell, other]] = data[[other, cell]]
        assert not holds(stack, changed, expected)
        changed = data.clone()
        changed[cell] += 1
        assert not holds(stack, changed, expected)


@pytest.mark.parametrize("kind", [Kind("padded"), Kind("padded", "left")], ids=str)
def test_padding_is_not_looked_at_here(kind: Kind) -> None:
    ((stack, data, expected),) = make_case(kind, [(4, 2), (4, 2)])
    tokens = set(find_token_cells(kind, stack))
    for cell in set(range(len(data))) - tokens:
        changed = data.clone()
        changed[cell] = 999
        assert holds(stack, changed, expected)


def roll(packed: PackedSequence) -> PackedSequence:
    return packed._replace(data=packed.data.roll(1, 0))


def spoil_last(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.clone()
    rows[(-1,) * rows.dim()] += 1
    return rows


Broken = Callable[..., Any]
BROKEN: dict[str, tuple[str, Broken]] = {
    "other ids": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (whole(*args, **kwargs)[0] + 1, whole(*args, **kwargs)[1]),
    ),
    "one other cell": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (
            spoil_last(whole(*args, **kwargs)[0]),
            whole(*args, **kwargs)[1],
        ),
    ),
    "other padding": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: whole(*args, **{**kwargs, "padding_value": 0}),
    ),
    "other lengths": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (
            whole(*args, **kwargs)[0],
            whole(*args, **kwargs)[1].flip(0) + 1,
        ),
    ),
    "rows in another order": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (
            whole(*args, **kwargs)[0].flip(0 if kwargs.get("batch_first") else 1),
            whole(*args, **kwargs)[1],
        ),
    ),
    "wrong where batch_first": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (
            whole(*args, **kwargs)[0] + bool(kwargs.get("batch_first")),
            whole(*args, **kwargs)[1],
        ),
    ),
    "wrong where not batch_first": (
        "pad_packed_sequence",
        lambda whole, *args, **kwargs: (
            whole(*args, **kwargs)[0] + (not kwargs.get("batch_first")),
            whole(*args, **kwargs)[1],
        ),
    ),
    "other data": (
        "pack_padded_sequence",
        lambda whole, *args, **kwargs: roll(whole(*args, **kwargs)),
    ),
    "other batch_sizes where not batch_first": (  # torch itself refuses to pad such ones
        "pack_padded_sequence",
        lambda whole, rows, lengths, batch_first=False: whole(rows, lengths, batch_first)._replace(
            batch_sizes=whole(rows, lengths, batch_first).batch_sizes + (not batch_first)
        ),
    ),
    "other data where not batch_first": (
        "pack_padded_sequence",
        lambda whole, rows, lengths, batch_first=False: (
            whole(rows, lengths, batch_first)
            if batch_first
            else roll(whole(rows, lengths, batch_first))
        ),
    ),
}


@pytest.mark.parametrize(("name", "broken"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("kind", [Kind("packed"), Kind("padded"), Kind("padded", "left")], ids=str)
@pytest.mark.parametrize("num_batches", [1, 3])
@pytest.mark.parametrize("max_cells", [4, 1 << 18])
def test_torch_that_is_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Broken,
    kind: Kind,
    num_batches: int,
    max_cells: int,
) -> None:
    cases = make_case(kind, [(5, 3, 2)] * num_batches, max_cells=max_cells)
    whole = getattr(stacks, name)
    monkeypatch.setattr(stacks, name, lambda *args, **kwargs: broken(whole, *args, **kwargs))
    assert not all(holds(*case) for case in cases)


@pytest.mark.parametrize("kind", [Kind("packed"), Kind("padded"), Kind("padded", "left")], ids=str)
def test_total_length_that_is_passed_over_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    whole = getattr(stacks, "pad_packed_sequence")  # noqa: B009 - mypy: not exported
    monkeypatch.setattr(
        stacks,
        "pad_packed_sequence",
        lambda *args, **kwargs: whole(*args, **{**kwargs, "total_length": None}),
    )
    (case,) = make_case(kind, [(5, 3, 2)])
    assert not holds(*case)


@pytest.mark.cuda
@every_kind
@pytest.mark.parametrize("max_cells", [5, 1 << 18])
def test_stacks_on_cuda_are_judged_alike(kind: Kind, max_cells: int) -> None:
    for seed in range(4):
        shard, store = draw_shard(kind, seed, num_most=8)
        for stack, *both in iter_stacks(shard, store, max_cells):
            data, expected = (ids.cuda() for ids in both)
            assert holds(stack, data, expected)
            for cell in find_token_cells(kind, stack):
                changed = data.clone()
                changed[cell] += 1
                assert not holds(stack, changed, expected)


@pytest.mark.parametrize("kind", [Kind("packed"), Kind("padded"), Kind("padded", "left")], ids=str)
def test_garbage_behind_the_longest_row_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    whole = stacks.pad_packed_sequence

    def spoil(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        padded, lengths = whole(*args, **kwargs)
        if kwargs.get("total_length"):
            padded = padded.clone()
            padded[:, -1] = 3
        return padded, lengths

    monkeypatch.setattr(stacks, "pad_packed_sequence", spoil)
    for stack, data, expected in make_case(kind, [(5, 3, 2)]):
        assert not holds(stack, data, expected)


@pytest.mark.parametrize("large", [1, 2, 1 << 15])
def test_one_difference_in_many_tensors_is_found(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(LIMITS, "large_tensor", large)
    ids, steps = torch.tensor([[1, 2], [3, 4]], dtype=torch.int16), torch.tensor([2, 1])
    right = [(ids, ids.clone()), (steps, steps.clone()), (ids.t(), ids.t().clone())]
    assert are_same(right)
    assert are_same([])
    for wrong in ((ids, ids.t()), (steps, steps + 1), (steps, steps[:1]), (ids, ids.int())):
        for place in range(4):
            assert not are_same([*right[:place], wrong, *right[place:]])
    # what is missing in one tensor and too much in the next
    assert not are_same([(steps, steps[:1]), (steps[:1], steps)])
