"""The cells' steps written out beside torch's single-step cells."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqpack_cli.verification.cells import CELLS
from seqpack_cli.verification.ways import HIDDEN_SIZE, MEMORY_BIAS, build_model

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


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_memory_gate_keeps_the_first_token_to_the_end(cell: str) -> None:
    changes = {}
    for remembers in (False, True):
        model = build_model(
            CELLS[cell],
            num_embeddings=9,
            device=torch.device("cpu"),
            dtype=torch.float64,
            seed=0,
            remembers=remembers,
        )
        ids = torch.arange(60)[None] % 7
        other = ids.clone()
        other[0, 0] = 8
        with torch.no_grad():
            first, last = (model.recurrent(model.embedding(row))[0][0, -1] for row in (ids, other))
        changes[remembers] = float((first - last).abs().max())
    assert changes[False] < 1e-5
    assert changes[True] > 1e-3


def test_memory_bias_lies_on_one_gate_of_a_model_of_the_same_seed() -> None:
    plain, remembering = (
        build_model(
            CELLS["lstm"],
            num_embeddings=4,
            device=torch.device("cpu"),
            dtype=torch.float64,
            seed=3,
            remembers=remembers,
        )
        for remembers in (False, True)
    )
    difference = remembering.recurrent.bias_hh_l0 - plain.recurrent.bias_hh_l0
    gates = difference.view(4, HIDDEN_SIZE)
    assert torch.allclose(gates[1], torch.full((HIDDEN_SIZE,), MEMORY_BIAS, dtype=torch.float64))
    assert not gates[[0, 2, 3]].any()
    assert torch.equal(plain.embedding.weight, remembering.embedding.weight)


def test_build_model_leaves_torchs_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    for dtype in (torch.float32, torch.bfloat16):
        model = build_model(
            CELLS["gru"],
            num_embeddings=4,
            device=torch.device("cpu"),
            dtype=dtype,
            seed=0,
            remembers=True,
        )
        assert {value.dtype for value in model.parameters().values()} == {dtype}
    assert torch.equal(torch.random.get_rng_state(), before)
