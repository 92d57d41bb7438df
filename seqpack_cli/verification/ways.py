"""Four ways to run one model over one batch, each from its own copy of the ids.

`packed` is torch over a PackedSequence; `alone` torch over each sequence by itself; `padded` torch
over the rectangle, each row's state picked where the row ends; `loop` the reference recurrence in
float64. All give outputs row after row, so that they can be compared cell by cell.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.verification.batch_ids import BatchIds
from seqpack_cli.verification.cells import Cell
from seqpack_cli.verification.recurrence import State, walk_batch_sizes

EMBEDDING_SIZE = 32
HIDDEN_SIZE = 64
# A model that remembers: its first token still moves an LSTM's outputs by 0.01 after 1,000 steps,
# torch's initialisation forgets it in 20. With full recurrent weights such a model is chaotic, and
# rounding grows to 1e-3 (measured); with a quarter of them it stays below 1e-5.
MEMORY_BIAS = 5.0
MEMORY_RECURRENCE = 0.25


@dataclass(frozen=True)
class Model:
    """An embedding and one recurrent layer."""

    cell: Cell
    embedding: nn.Embedding
    recurrent: nn.RNNBase

    def parameters(self) -> dict[str, nn.Parameter]:
        """Name every weight."""
        recurrent = self.recurrent.named_parameters()
        named = {f"weight {name}": parameter for name, parameter in recurrent}
        return {"weight embedding": self.embedding.get_parameter("weight"), **named}

    def in_float64(self) -> Model:
        """Give a copy with the same weights in float64."""
        return Model(
            self.cell,
            copy.deepcopy(self.embedding).double(),
            copy.deepcopy(self.recurrent).double(),
        )


@dataclass(frozen=True)
class Run:
    """What one way gave."""

    outputs: torch.Tensor  # [S, H], row after row
    states: State  # each [B, H]: h_n, and c_n where the cell has one
    inputs: torch.Tensor  # the embedded ids, in the way's own shape
    to_rows: Callable[[torch.Tensor], torch.Tensor]  # from that shape to row after row


def build_model(
    cell: Cell,
    *,
    num_embeddings: int,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    remembers: bool,
) -> Model:
    """Build a model with torch's own initialisation, the same for one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = nn.Embedding(num_embeddings, EMBEDDING_SIZE)
        recurrent = cell.module(EMBEDDING_SIZE, HIDDEN_SIZE, batch_first=True)
    if remembers and cell.memory_gate is not None:
        gate = slice(cell.memory_gate * HIDDEN_SIZE, (cell.memory_gate + 1) * HIDDEN_SIZE)
        with torch.no_grad():
            recurrent.get_parameter("bias_hh_l0")[gate] += MEMORY_BIAS
            recurrent.get_parameter("weight_hh_l0").mul_(MEMORY_RECURRENCE)
    embedding = embedding.to(device=device, dtype=dtype)
    recurrent = recurrent.to(device=device, dtype=dtype)
    recurrent.flatten_parameters()
    return Model(cell, embedding, recurrent)


def run_packed(model: Model, ids: BatchIds) -> Run:
    """Run torch's module over a PackedSequence."""
    inputs = _embed(model, ids.packed.data)
    packed = PackedSequence(inputs, ids.packed.batch_sizes, None, None)
    outputs, hidden = model.recurrent(packed)
    states = tuple(state[0] for state in _as_tuple(hidden))
    return Run(outputs.data[ids.row_order], states, inputs, lambda array: array[ids.row_order])


def run_alone(model: Model, ids: BatchIds) -> Run:
    """Run torch's module over each sequence by itself."""
    inputs = _embed(model, ids.packed.data[ids.row_order])
    outputs, states = [], []
    for row in torch.split(inputs, ids.lengths.tolist()):
        output, hidden = model.recurrent(row[None])
        outputs.append(output[0])
        states.append(tuple(state[0] for state in _as_tuple(hidden)))
    joined = tuple(torch.cat(parts) for parts in zip(*states, strict=True))
    return Run(torch.cat(outputs), joined, inputs, lambda array: array)


def run_padded(model: Model, ids: BatchIds) -> Run:
    """Run torch's module over the rectangle, and look only at cells that hold a token.

    Time is cut where rows end, to pick their states there; all rows run on to the end.
    """
    mask = ids.mask
    inputs = _embed(model, ids.rectangle)
    ends = torch.unique(ids.lengths).tolist()
    widths = np.diff([0, *ends]).tolist()
    rest = inputs.shape[1] - ends[-1]
    outputs, states = [], []
    hidden: Any = None
    for end, part in zip(ends, torch.split(inputs, [*widths, rest], dim=1), strict=False):
        output, hidden = model.recurrent(part, hidden)
        outputs.append(output)
        ended = (ids.lengths == end).to(inputs.device)
        states.append(tuple(state[0][ended] for state in _as_tuple(hidden)))
    joined = tuple(torch.cat(parts) for parts in zip(*reversed(states), strict=True))
    used = mask[:, : ends[-1]]
    return Run(torch.cat(outputs, dim=1)[used], joined, inputs, lambda array: array[mask])


def run_loop(model: Model, ids: BatchIds) -> Run:
    """Run the reference recurrence."""
    inputs = _embed(model, ids.packed.data)
    weights = dict(model.recurrent.named_parameters())
    gates = nn.functional.linear(inputs, weights["weight_ih_l0"], weights["bias_ih_l0"])
    zeros = inputs.new_zeros(len(ids.lengths), HIDDEN_SIZE)
    start = zeros if model.cell.num_states == 1 else (zeros,) * model.cell.num_states
    outputs, hidden = walk_batch_sizes(
        lambda rows, state: model.cell.step(
            rows, state, weights["weight_hh_l0"], weights["bias_hh_l0"]
        ),
        gates,
        ids.packed.batch_sizes.tolist(),
        start,
    )
    states = _as_tuple(hidden)
    return Run(outputs[ids.row_order], states, inputs, lambda array: array[ids.row_order])


def _embed(model: Model, ids: torch.Tensor) -> torch.Tensor:
    inputs: torch.Tensor = model.embedding(ids)
    if inputs.requires_grad:
        inputs.retain_grad()
    return inputs


def _as_tuple(hidden: torch.Tensor | State) -> State:
    return (hidden,) if isinstance(hidden, torch.Tensor) else tuple(hidden)
