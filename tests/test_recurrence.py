"""The reference recurrence beside torch's own LSTM, GRU and RNN over a PackedSequence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from seqpack_cli.shards.packed import pack
from seqpack_cli.verification import computation
from seqpack_cli.verification.batch_ids import BatchIds, SizeLimits, take_ids
from seqpack_cli.verification.cells import CELLS
from seqpack_cli.verification.computation import check_forward
from seqpack_cli.verification.recurrence import Hidden, walk_batch_sizes
from seqpack_cli.verification.ways import Model, Run, build_model, run_loop, run_packed

Step = Callable[[torch.Tensor, Hidden], Hidden]
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(
    lambda lengths: sorted(lengths, reverse=True)
)
LEAK_LENGTHS = [7, 5, 5, 2, 1, 1]


def torch_step(cell: str, recurrent: nn.RNNBase) -> Step:
    """Give torch's own single-step cell with the weights of a layer."""
    single = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[cell](4, 5).double()
    single.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in recurrent.state_dict().items()}
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


def make_ids(lengths: list[int]) -> BatchIds:
    draws = np.random.default_rng(0)
    batch = pack([draws.integers(0, 9, n) for n in lengths])
    return take_ids(batch, torch.device("cpu"), SizeLimits(max_tokens=1000, max_steps=100))


def make_model(cell: str, *, remembers: bool = False) -> Model:
    return build_model(
        CELLS[cell],
        num_embeddings=10,
        device=torch.device("cpu"),
        dtype=torch.float64,
        seed=0,
        remembers=remembers,
    )


def failed_quantities(model: Model, ids: BatchIds) -> set[str]:
    """Run the check of level `forward` and give what failed."""
    generator = torch.Generator().manual_seed(0)
    comparisons = check_forward(model, ids, remembers=False, generator=generator)
    return {comparison.quantity for comparison in comparisons if comparison.failed}


@pytest.mark.parametrize("cell", CELLS)
def test_forward_catches_a_loop_that_does_not_trim(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = make_model(cell), make_ids(LEAK_LENGTHS)
    assert failed_quantities(model, ids) == set()
    monkeypatch.setattr("seqpack_cli.verification.ways.walk_batch_sizes", walk_without_trimming)
    assert run_loop(model, ids).outputs.allclose(run_packed(model, ids).outputs)
    caught = failed_quantities(model, ids)
    # every way is beside the loop; the others may be off as far as `alone` is
    assert caught == {"alone h_n"} | ({"alone c_n"} if cell == "lstm" else set())


@pytest.mark.parametrize("cell", CELLS)
def test_forward_catches_a_packed_way_that_does_not_trim(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_on(model: Model, ids: BatchIds) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("seqpack_cli.verification.ways.walk_batch_sizes", walk_without_trimming)
            return run_loop(model, ids)

    monkeypatch.setitem(computation.WAYS, "packed", run_on)
    caught = failed_quantities(make_model(cell), make_ids(LEAK_LENGTHS))
    assert caught == {"packed h_n"} | ({"packed c_n"} if cell == "lstm" else set())


def test_forward_finds_nothing_without_trimming_when_all_rows_end_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seqpack_cli.verification.ways.walk_batch_sizes", walk_without_trimming)
    assert failed_quantities(make_model("lstm"), make_ids([4, 4])) == set()


@pytest.mark.parametrize("wrong_state", [0, 1])
def test_forward_catches_a_packed_way_with_states_of_other_rows(
    monkeypatch: pytest.MonkeyPatch, wrong_state: int
) -> None:
    def mixed_up(model: Model, ids: BatchIds) -> Run:
        run = run_packed(model, ids)
        states = list(run.states)
        states[wrong_state] = states[wrong_state].flip(0)
        return Run(run.outputs, tuple(states), run.inputs, run.to_rows)

    monkeypatch.setitem(computation.WAYS, "packed", mixed_up)
    caught = failed_quantities(make_model("lstm"), make_ids(LEAK_LENGTHS))
    assert caught == {("packed h_n", "packed c_n")[wrong_state]}
