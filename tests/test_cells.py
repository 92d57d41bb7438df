"""The cells' steps written out beside torch's single-step cells."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqpack_cli.verification.models.cells import CELLS

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
