"""The recurrent cells that verify knows: torch's module, and one step written out.

One table; nothing elsewhere asks which cell it is. The steps are torch's documented equations on
the module's own weights, gates in torch's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from seqpack_cli.verification.models.recurrence import Hidden

# inputs already through weight_ih and bias_ih [rows, gates x H], hidden, weight_hh, bias_hh
Step = Callable[[torch.Tensor, Hidden, torch.Tensor, torch.Tensor], Hidden]


@dataclass(frozen=True)
class Cell:
    """A recurrent cell."""

    module: Callable[..., nn.RNNBase]
    num_states: int  # 2 where the hidden state is a tuple (h, c)
    step: Step
    memory_gate: int | None  # the gate whose bias makes it remember, counted in torch's order


def _step_lstm(
    inputs: torch.Tensor, hidden: Hidden, weight: torch.Tensor, bias: torch.Tensor
) -> Hidden:
    output, memory = hidden
    gates = inputs + nn.functional.linear(output, weight, bias)
    enter, forget, new, leave = gates.chunk(4, dim=1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(memory), memory


def _step_gru(
    inputs: torch.Tensor, hidden: Hidden, weight: torch.Tensor, bias: torch.Tensor
) -> Hidden:
    assert isinstance(hidden, torch.Tensor)  # noqa: S101
    input_reset, input_update, input_new = inputs.chunk(3, dim=1)
    reset, update, new = nn.functional.linear(hidden, weight, bias).chunk(3, dim=1)
    keep = torch.sigmoid(input_update + update)
    candidate = torch.tanh(input_new + torch.sigmoid(input_reset + reset) * new)
    return (1 - keep) * candidate + keep * hidden


def _step_rnn(
    inputs: torch.Tensor, hidden: Hidden, weight: torch.Tensor, bias: torch.Tensor
) -> Hidden:
    assert isinstance(hidden, torch.Tensor)  # noqa: S101
    return torch.tanh(inputs + nn.functional.linear(hidden, weight, bias))


CELLS = {
    "lstm": Cell(nn.LSTM, 2, _step_lstm, memory_gate=1),
    "gru": Cell(nn.GRU, 1, _step_gru, memory_gate=1),
    "rnn": Cell(nn.RNN, 1, _step_rnn, memory_gate=None),
}
