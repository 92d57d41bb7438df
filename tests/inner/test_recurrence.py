"""The reference recurrence beside torch's own LSTM, GRU and RNN over a PackedSequence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import make_model
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from seqpack_cli.shards import packed
from seqpack_cli.verification.models.batch_ids import BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.models.computation import WAYS, check_forward
from seqpack_cli.verification.models.model import CELLS, Model
from seqpack_cli.verification.models.recurrence import (
    Hidden,
    Step,
    as_state,
    walk_batch_sizes,
    walk_batch_sizes_reversed,
)
from seqpack_cli.verification.models.ways import Run, run_loop, run_packed

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(
    lambda lengths: sorted(lengths, reverse=True)
)
LEAK_LENGTHS = [7, 5, 5, 2, 1, 1]


def torch_step(cell: str, recurrent: nn.RNNBase, suffix: str = "_l0") -> Step:
    """Return torch's own single-step cell with the weights of a layer and direction."""
    single = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[cell](4, 5).double()
    single.load_state_dict(
        {
            name.removesuffix(suffix): value
            for name, value in recurrent.state_dict().items()
            if name.endswith(suffix)
        }
    )
    return lambda rows, hidden: single(rows, hidden)


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS)
def test_walk_gives_what_torch_gives(cell: str, lengths: list[int]) -> None:
    torch.manual_seed(len(lengths))
    recurrent = CELLS[cell].module(4, 5).double()
    packed = pack_sequence([torch.randn(n, 4, dtype=torch.float64) for n in lengths])
    zeros = torch.zeros(len(lengths), 5, dtype=torch.float64)
    with torch.no_grad():
        wanted, states = recurrent(packed)
        outputs, found = walk_batch_sizes(
            torch_step(cell, recurrent),
            packed.data,
            packed.batch_sizes.tolist(),
            (zeros, zeros) if cell == "lstm" else zeros,
        )
    assert torch.allclose(outputs, wanted.data, rtol=0, atol=1e-14)
    assert isinstance(found, tuple) is isinstance(states, tuple) is (cell == "lstm")
    pairs = zip(found, states, strict=True) if cell == "lstm" else [(found, states)]
    for ours, theirs in pairs:
        assert torch.allclose(ours, theirs[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS)
def test_reversed_walk_gives_what_torch_gives_backwards(cell: str, lengths: list[int]) -> None:
    torch.manual_seed(len(lengths))
    recurrent = CELLS[cell].module(4, 5, bidirectional=True).double()
    packed = pack_sequence([torch.randn(n, 4, dtype=torch.float64) for n in lengths])
    zeros = torch.zeros(len(lengths), 5, dtype=torch.float64)
    with torch.no_grad():
        wanted, states = recurrent(packed)
        outputs, found = walk_batch_sizes_reversed(
            torch_step(cell, recurrent, "_l0_reverse"),
            packed.data,
            packed.batch_sizes.tolist(),
            (zeros, zeros) if cell == "lstm" else zeros,
        )
    assert torch.allclose(outputs, wanted.data[:, 5:], rtol=0, atol=1e-14)
    assert isinstance(found, tuple) is (cell == "lstm")
    for ours, theirs in zip(as_state(found), as_state(states), strict=True):
        assert torch.allclose(ours, theirs[1], rtol=0, atol=1e-14)


def test_reversed_walk_lets_rows_join_with_their_start_state() -> None:
    def step(rows: torch.Tensor, hidden: Hidden) -> Hidden:
        total, count = hidden
        assert len(total) == len(count) == len(rows)
        return total + rows, count + 1

    start = (torch.tensor([[10.0], [20.0], [30.0]]), torch.zeros(3, 1))
    outputs, final = walk_batch_sizes_reversed(step, torch.ones(6, 1), [3, 2, 1], start)
    assert outputs.flatten().tolist() == [13, 22, 31, 12, 21, 11]
    assert [part.flatten().tolist() for part in final] == [[13, 22, 31], [3, 2, 1]]


def test_reversed_walk_is_the_walk_over_rows_turned_round() -> None:
    data = pack_sequence([torch.randn(n, 1) for n in (5, 3, 3, 1)])
    turned = pack_sequence([row.flip(0) for row in unpack_sequence(data)])
    sizes, zeros = data.batch_sizes.tolist(), torch.zeros(4, 1)

    def step(rows: torch.Tensor, hidden: Hidden) -> Hidden:
        assert isinstance(hidden, torch.Tensor)
        return torch.tanh(2 * hidden + rows)

    outputs, final = walk_batch_sizes_reversed(step, data.data, sizes, zeros)
    wanted, wanted_final = walk_batch_sizes(step, turned.data, sizes, zeros)
    rows = [row.flip(0) for row in unpack_sequence(turned._replace(data=wanted))]
    assert torch.equal(outputs, pack_sequence(rows).data)
    assert torch.equal(as_state(final)[0], as_state(wanted_final)[0])


def test_walk_of_rows_that_end_together_keeps_one_state() -> None:
    def add(rows: torch.Tensor, hidden: Hidden) -> Hidden:
        assert isinstance(hidden, torch.Tensor)
        return hidden + rows

    data = torch.arange(6.0)[:, None]
    outputs, final = walk_batch_sizes(add, data, [3, 3], torch.zeros(3, 1))
    assert outputs.flatten().tolist() == [0, 1, 2, 3, 5, 7]
    assert isinstance(final, torch.Tensor)
    assert final.flatten().tolist() == [3, 5, 7]


def test_walk_begins_with_the_given_state_and_passes_tuples_on() -> None:
    def step(rows: torch.Tensor, hidden: Hidden) -> Hidden:
        total, count = hidden
        assert len(total) == len(count) == len(rows)
        return total + rows, count + 1

    start = (torch.tensor([[10.0], [20.0], [30.0]]), torch.zeros(3, 1))
    outputs, final = walk_batch_sizes(step, torch.ones(6, 1), [3, 2, 1], start)
    assert outputs.flatten().tolist() == [11, 21, 31, 12, 22, 13]
    assert [part.flatten().tolist() for part in final] == [[13, 22, 31], [3, 2, 1]]


def test_walk_gives_gradients_to_every_step() -> None:
    data = torch.ones(4, 1, dtype=torch.float64, requires_grad=True)

    def double(rows: torch.Tensor, hidden: Hidden) -> Hidden:
        assert isinstance(hidden, torch.Tensor)
        return 2 * hidden + rows

    _, final = walk_batch_sizes(double, data, [2, 1, 1], torch.zeros(2, 1, dtype=torch.float64))
    assert isinstance(final, torch.Tensor)
    final.sum().backward()
    assert data.grad is not None
    assert data.grad.flatten().tolist() == [4, 1, 2, 1]


def walk_without_trimming(
    step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
) -> tuple[torch.Tensor, Hidden]:
    """Run on with all rows: those that ended go on with inputs of zero, as in a padded run."""
    num_rows = batch_sizes[0]
    outputs = []
    for rows in torch.split(inputs, batch_sizes):
        padding = rows.new_zeros(num_rows - len(rows), rows.shape[1])
        hidden = step(torch.cat([rows, padding]), hidden)
        first = hidden if isinstance(hidden, torch.Tensor) else hidden[0]
        outputs.append(first[: len(rows)])
    return torch.cat(outputs), hidden


def walk_reversed_without_growing(
    step: Step, inputs: torch.Tensor, batch_sizes: list[int], hidden: Hidden
) -> tuple[torch.Tensor, Hidden]:
    """Run with all rows from the last step on: short ones have read zeros before their tokens."""
    num_rows = batch_sizes[0]
    outputs = []
    for rows in reversed(torch.split(inputs, batch_sizes)):
        padding = rows.new_zeros(num_rows - len(rows), rows.shape[1])
        hidden = step(torch.cat([rows, padding]), hidden)
        outputs.append(as_state(hidden)[0][: len(rows)])
    return torch.cat(outputs[::-1]), hidden


def make_ids(lengths: list[int]) -> BatchIds:
    draws = np.random.default_rng(0)
    batch = packed.pack_sequence([draws.integers(0, 9, n) for n in lengths])
    return take_ids(batch, torch.device("cpu"), SizeLimits(max_tokens=1000, max_steps=100))


def failed_quantities(model: Model, ids: BatchIds, **given: Any) -> set[str]:
    """Run the check of level `forward` and give what failed."""
    generator = torch.Generator().manual_seed(0)
    comparisons = check_forward(model, ids, generator=generator, **given)
    return {comparison.quantity for comparison in comparisons if comparison.failed}


RUN_ON = partial(run_loop, walk=walk_without_trimming)
RUN_TOO_EARLY = partial(run_loop, walk_reversed=walk_reversed_without_growing)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_forward_catches_a_loop_that_does_not_trim(cell: str, num_layers: int) -> None:
    model, ids = make_model(cell, num_layers=num_layers), make_ids(LEAK_LENGTHS)
    assert failed_quantities(model, ids) == set()
    assert RUN_ON(model, ids).outputs.allclose(run_packed(model, ids).outputs)
    caught = failed_quantities(model, ids, reference=RUN_ON)
    states = ("h_n", "c_n") if cell == "lstm" else ("h_n",)
    assert caught == {f"{way} {state}" for way in WAYS for state in states}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_forward_catches_a_packed_way_that_does_not_trim(cell: str, bidirectional: bool) -> None:
    model, ids = make_model(cell, bidirectional=bidirectional), make_ids(LEAK_LENGTHS)
    caught = failed_quantities(model, ids, ways=WAYS | {"packed": RUN_ON})
    assert caught == {"packed h_n"} | ({"packed c_n"} if cell == "lstm" else set())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_forward_catches_a_reversed_walk_that_does_not_grow(cell: str, num_layers: int) -> None:
    model = make_model(cell, num_layers=num_layers, bidirectional=True)
    ids, states = make_ids(LEAK_LENGTHS), {"h_n", "c_n"} if cell == "lstm" else {"h_n"}
    caught = failed_quantities(model, ids, ways=WAYS | {"packed": RUN_TOO_EARLY})
    assert caught == {f"packed {quantity}" for quantity in {"outputs", *states}}
    caught = failed_quantities(model, ids, reference=RUN_TOO_EARLY)
    assert caught == {f"{way} {quantity}" for way in WAYS for quantity in {"outputs", *states}}


@pytest.mark.parametrize("faulty", [RUN_ON, RUN_TOO_EARLY])
def test_forward_finds_nothing_when_all_rows_end_together(faulty: Any) -> None:
    model = make_model("lstm", bidirectional=True)
    assert failed_quantities(model, make_ids([4, 4]), reference=faulty) == set()


@pytest.mark.parametrize("wrong_state", [0, 1])
def test_forward_catches_a_packed_way_with_states_of_other_rows(wrong_state: int) -> None:
    def mixed_up(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        states = list(run.states)
        states[wrong_state] = states[wrong_state].flip(0)
        return Run(run.outputs, tuple(states), run.inputs, run.to_rows)

    ways = WAYS | {"packed": mixed_up}
    caught = failed_quantities(make_model("lstm"), make_ids(LEAK_LENGTHS), ways=ways)
    assert "packed " + ("h_n", "c_n")[wrong_state] in caught
    assert caught <= {
        f"packed {('h_n', 'c_n')[wrong_state]}{more}" for more in ("", " of unchanged rows")
    }
