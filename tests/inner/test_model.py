"""The models: their sizes, that one seed gives the same weights, and that some remember."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from models import make_model
from torch import nn

from seqpack_cli.verification.models.model import (
    CELLS,
    HIDDEN_SIZE,
    MEMORY_BIAS,
    MEMORY_RECURRENCE,
)

# sums of the default LSTM's weights for 9 embeddings and seed 3
EXPECTED = {
    "weight embedding": -0.1865,
    "weight weight_ih_l0": -3.8118,
    "weight weight_hh_l0": 6.3302,
    "weight bias_ih_l0": -1.2295,
    "weight bias_hh_l0": -0.1059,
}


build = partial(make_model, num_embeddings=9, seed=3)


@pytest.mark.parametrize(
    ("hidden_size", "embedding_size"), [(1, 1), (2, 1), (3, 1), (16, 8), (256, 128)]
)
def test_embeddings_have_half_the_size_of_hidden_states(
    hidden_size: int, embedding_size: int
) -> None:
    model = build(hidden_size=hidden_size)
    assert model.hidden_size == hidden_size
    assert model.embedding.embedding_dim == model.recurrent.input_size == embedding_size


def test_default_model_is_one_layer_in_one_direction() -> None:
    model = build()
    assert model.hidden_size == HIDDEN_SIZE == 64
    assert (model.recurrent.num_layers, model.num_directions) == (1, 1)
    assert model.recurrent.dropout == 0
    assert model.recurrent.batch_first


def test_default_weights_stay_those_of_their_seed() -> None:
    # taken from the first release: a report's seed must go on meaning the same model
    parameters = build(dtype=torch.float32).parameters()
    sums = {name: float(value.detach().double().sum()) for name, value in parameters.items()}
    assert sums == pytest.approx(EXPECTED, abs=1e-3)


@pytest.mark.parametrize("cell", CELLS)
def test_layers_are_torchs_weights_in_torchs_order(cell: str) -> None:
    model = build(cell, num_layers=2, bidirectional=True, hidden_size=4)
    layers = model.layers()
    assert [len(directions) for directions in layers] == [2, 2]
    named = dict(model.recurrent.named_parameters())
    for layer, directions in enumerate(layers):
        for suffix, weights in zip(("", "_reverse"), directions, strict=True):
            for name, weight in zip(
                ("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True
            ):
                assert weight is named[f"{name}_l{layer}{suffix}"]
    assert len(model.parameters()) == 1 + 16


@pytest.mark.parametrize(("cell", "num_gates"), [("lstm", 4), ("gru", 3)])
def test_memory_lies_on_one_gate_of_every_layer_and_direction(cell: str, num_gates: int) -> None:
    shape = {"num_layers": 2, "bidirectional": True, "hidden_size": 4}
    plain, remembering = (build(cell, remembers=remembers, **shape) for remembers in (False, True))
    bias = torch.zeros(num_gates, 4, dtype=torch.float64)
    bias[1] = MEMORY_BIAS
    for name, before in plain.parameters().items():
        after = remembering.parameters()[name]
        if "bias_hh" in name:
            assert torch.allclose(after - before, bias.flatten())
        elif "weight_hh" in name:
            assert torch.equal(after, MEMORY_RECURRENCE * before)
        else:
            assert torch.equal(after, before)


def test_cell_without_memory_gate_has_nothing_to_remember_with() -> None:
    plain, remembering = (build("rnn", remembers=flag, num_layers=2) for flag in (False, True))
    for name, before in plain.parameters().items():
        assert torch.equal(remembering.parameters()[name], before)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_memory_keeps_the_first_token_to_the_end(cell: str, num_layers: int) -> None:
    changes = {}
    for remembers in (False, True):
        model = build(cell, seed=0, remembers=remembers, num_layers=num_layers)
        ids = torch.arange(60)[None] % 7
        other = ids.clone()
        other[0, 0] = 8
        with torch.no_grad():
            first, last = (model.recurrent(model.embedding(row))[0][0, -1] for row in (ids, other))
        changes[remembers] = float((first - last).abs().max())
    assert changes[False] < 1e-5
    assert changes[True] > 1e-3


def test_copy_in_float64_has_the_same_weights_of_its_own() -> None:
    model = build(dtype=torch.float32, num_layers=2, bidirectional=True, hidden_size=4)
    exact = model.in_float64()
    for name, weight in exact.parameters().items():
        assert weight.dtype == torch.float64
        assert torch.equal(weight.float(), model.parameters()[name])
    with torch.no_grad():
        exact.embedding.weight.zero_()
    assert model.embedding.weight.any()


def test_build_model_leaves_torchs_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    for dtype in (torch.float32, torch.bfloat16):
        model = build("gru", dtype=dtype, remembers=True, num_layers=2, bidirectional=True)
        assert {value.dtype for value in model.parameters().values()} == {dtype}
    assert torch.equal(torch.random.get_rng_state(), before)


SINGLE = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}


def test_cells_are_those_of_the_options() -> None:
    assert list(CELLS) == ["lstm", "gru", "rnn"]


@pytest.mark.parametrize("cell", CELLS)
def test_step_is_torchs_cell(cell: str) -> None:
    torch.manual_seed(1)
    single = SINGLE[cell](3, 5).double()
    rows, hidden = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    memory = torch.randn(7, 5, dtype=torch.float64)
    state = (hidden, memory) if cell == "lstm" else hidden
    wanted = single(rows, state)
    inputs = nn.functional.linear(rows, single.weight_ih, single.bias_ih)
    found = CELLS[cell].step(inputs, state, single.weight_hh, single.bias_hh)
    assert isinstance(found, tuple) is (CELLS[cell].num_states == 2)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for ours, theirs in pairs:
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-15)
