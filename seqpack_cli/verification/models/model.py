"""The models that verify runs: an embedding and a recurrent stack, with torch's initialisation.

The same seed gives the same weights on every device. A model that remembers has a bias on its
memory gate too (LSTM's forget gate, GRU's update gate), so that a wrong first token still changes
the last state. The table of cells has torch's module and one step of its documented equations for
each cell; no other module depends on the kind of cell.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from seqpack_cli.verification.models.recurrence import Hidden

HIDDEN_SIZE = 64
# In a model that remembers, the first token still changes an LSTM's outputs by 0.01 after 1,000
# steps; with torch's initialisation it is forgotten after 20. With full recurrent weights such a
# model is chaotic and rounding errors grow to 1e-3 (measured); with a quarter of them they stay
# below 1e-5 in one layer, and below 1e-4 in three.
MEMORY_BIAS = 5.0
MEMORY_RECURRENCE = 0.25


@dataclass(frozen=True)
class Cell:
    """A recurrent cell."""

    module: Callable[..., nn.RNNBase]
    num_states: int  # 2 where the hidden state is a tuple (h, c)
    # takes inputs after weight_ih and bias_ih [rows, gates x H], hidden, weight_hh, bias_hh
    step: Callable[[torch.Tensor, Hidden, torch.Tensor, torch.Tensor], Hidden]
    memory_gate: int | None  # the gate whose bias makes it remember, in torch's order


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


@dataclass(frozen=True)
class Model:
    """An embedding and one or more recurrent layers, in one direction or in both."""

    cell: Cell
    embedding: nn.Embedding
    recurrent: nn.RNNBase
    remembers: bool

    @property
    def hidden_size(self) -> int:
        """The number of units of one layer in one direction."""
        return self.recurrent.hidden_size

    @property
    def num_directions(self) -> int:
        """1, or 2 if the model is bidirectional."""
        return 1 + int(self.recurrent.bidirectional)

    def layers(self) -> list[list[list[nn.Parameter]]]:
        """Return weights [layer][direction], each weight_ih, weight_hh, bias_ih, bias_hh."""
        weights = self.recurrent.all_weights  # torch's order: both directions of a layer in turn
        step = self.num_directions
        return [weights[start : start + step] for start in range(0, len(weights), step)]

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return every weight by name."""
        recurrent = self.recurrent.named_parameters()
        named = {f"weight {name}": parameter for name, parameter in recurrent}
        return {"weight embedding": self.embedding.get_parameter("weight"), **named}

    def in_float64(self) -> Model:
        """Return a copy with the same weights in float64."""
        embedding, recurrent = copy.deepcopy(self.embedding), copy.deepcopy(self.recurrent)
        return Model(self.cell, embedding.double(), recurrent.double(), self.remembers)


@dataclass(frozen=True)
class ModelShape:
    """The shape of a model; embeddings have half of hidden_size, at least 1."""

    num_embeddings: int
    cell: str = "lstm"
    num_layers: int = 1
    bidirectional: bool = False
    hidden_size: int = HIDDEN_SIZE
    remembers: bool = False  # with a bias on the memory gate of every layer, if the cell has one


def build_model(shape: ModelShape, *, device: torch.device, dtype: torch.dtype, seed: int) -> Model:
    """Build a model with torch's own initialisation, the same for one seed."""
    cell, hidden_size = CELLS[shape.cell], shape.hidden_size
    embedding_size = max(1, hidden_size // 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = nn.Embedding(shape.num_embeddings, embedding_size)
        recurrent = cell.module(
            embedding_size,
            hidden_size,
            num_layers=shape.num_layers,
            bidirectional=shape.bidirectional,
            batch_first=True,
        )
    if shape.remembers and cell.memory_gate is not None:
        gate = slice(cell.memory_gate * hidden_size, (cell.memory_gate + 1) * hidden_size)
        with torch.no_grad():
            for _, weight_hh, _, bias_hh in recurrent.all_weights:
                bias_hh[gate] += MEMORY_BIAS
                weight_hh.mul_(MEMORY_RECURRENCE)
    embedding = embedding.to(device=device, dtype=dtype)
    recurrent = recurrent.to(device=device, dtype=dtype)
    recurrent.flatten_parameters()
    return Model(cell, embedding, recurrent, shape.remembers)
