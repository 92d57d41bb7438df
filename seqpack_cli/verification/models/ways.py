"""Four ways to run one model over one batch, each from its own copy of the ids.

`packed` is torch over a PackedSequence; `alone` is torch over each sequence alone; `padded` is
torch over the rectangle, with each row's state taken where the row ends; `loop` is the reference
recurrence. All return outputs row after row, so that they can be compared cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.verification.models.batch_ids import BatchIds
from seqpack_cli.verification.models.model import Cell, Model
from seqpack_cli.verification.models.recurrence import (
    Hidden,
    State,
    Walk,
    as_state,
    walk_batch_sizes,
    walk_batch_sizes_reversed,
)


@dataclass(frozen=True)
class Run:
    """The results of one way, for a model of L layers and D directions."""

    outputs: torch.Tensor  # [S, D x H], row after row
    states: State  # each [B, L x D x H], layer by layer: h_n, and c_n for an LSTM
    inputs: torch.Tensor  # the embedded ids, in the way's own shape
    to_rows: Callable[[torch.Tensor], torch.Tensor]  # from that shape to row after row


def run_packed(model: Model, ids: BatchIds) -> Run:
    """Run torch's module over a PackedSequence."""
    inputs = _embed(model, ids.packed.data)
    packed = PackedSequence(inputs, ids.packed.batch_sizes, None, None)
    outputs, hidden = model.recurrent(packed)
    order = ids.row_order
    return Run(outputs.data[order], _rows_first(hidden), inputs, lambda array: array[order])


def run_alone(model: Model, ids: BatchIds) -> Run:
    """Run torch's module over each sequence alone."""
    inputs = _embed(model, ids.packed.data[ids.row_order])
    outputs, states = [], []
    for row in torch.split(inputs, ids.lengths.tolist()):
        output, hidden = model.recurrent(row[None])
        outputs.append(output[0])
        states.append(_rows_first(hidden))
    return Run(torch.cat(outputs), _join(states), inputs, lambda array: array)


def run_padded(model: Model, ids: BatchIds) -> Run:
    """Run torch's modules over the rectangle, and use only the cells that hold a token.

    Backwards, torch's module would read a row's padding before its tokens. In a bidirectional
    model, each layer and direction therefore runs separately, backwards over reversed rows.
    """
    mask, longest = ids.mask, int(ids.lengths[0])
    inputs = _embed(model, ids.rectangle)
    reverse = _find_reverse(ids)
    values, states = inputs[:, :longest], []
    for directions in _split_directions(model):
        outputs = []
        for module, backwards in zip(directions, (False, True), strict=False):
            given = values[reverse] if backwards else values
            output, state = _run_rectangle(module, given, ids.lengths)
            outputs.append(output[reverse] if backwards else output)
            states.append(state)
        values = torch.cat(outputs, dim=2)
    return Run(values[mask[:, :longest]], _join(states, dim=1), inputs, lambda array: array[mask])


def run_loop(
    model: Model,
    ids: BatchIds,
    *,
    walk: Walk = walk_batch_sizes,
    walk_reversed: Walk = walk_batch_sizes_reversed,
) -> Run:
    """Run the reference recurrence.

    Args:
        walk: the loop over batch_sizes; a faulty one shows that its fault is found.
        walk_reversed: the same for the backward direction.
    """
    inputs = _embed(model, ids.packed.data)
    values, states = inputs, []
    for directions in model.layers():
        outputs = []
        for weights, go in zip(directions, (walk, walk_reversed), strict=False):
            output, hidden = _walk_weights(model, weights, values, ids, go)
            outputs.append(output)
            states.append(as_state(hidden))
        values = torch.cat(outputs, dim=1)
    order = ids.row_order
    return Run(values[order], _join(states, dim=1), inputs, lambda array: array[order])


def _walk_weights(
    model: Model, weights: list[nn.Parameter], values: torch.Tensor, ids: BatchIds, walk: Walk
) -> tuple[torch.Tensor, Hidden]:
    """Run one layer in one direction."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    zeros = values.new_zeros(len(ids.lengths), model.hidden_size)
    start = zeros if model.cell.num_states == 1 else (zeros,) * model.cell.num_states
    return walk(
        lambda rows, hidden: model.cell.step(rows, hidden, weight_hh, bias_hh),
        nn.functional.linear(values, weight_ih, bias_ih),
        ids.packed.batch_sizes.tolist(),
        start,
    )


def _run_rectangle(
    module: nn.RNNBase, values: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, State]:
    """Run a module of one direction over a rectangle [B, T, I], T the longest row's length.

    Time is cut where rows end, to take their states there; all rows run to the end.
    """
    ends = torch.unique(lengths).tolist()
    outputs, states = [], []
    hidden: Any = None
    for end, part in zip(
        ends, torch.split(values, np.diff([0, *ends]).tolist(), dim=1), strict=True
    ):
        output, hidden = module(part, hidden)
        outputs.append(output)
        ended = (lengths == end).to(values.device)
        states.append(tuple(state[ended] for state in _rows_first(hidden)))
    return torch.cat(outputs, dim=1), _join(states[::-1])


def _split_directions(model: Model) -> list[list[nn.RNNBase]]:
    """Return the modules that run over a rectangle one after another, [layer][direction]."""
    if model.num_directions == 1:
        return [[model.recurrent]]  # all layers at once, since none reads the padding
    return [
        [_share(model.cell, weights) for weights in directions] for directions in model.layers()
    ]


def _share(cell: Cell, weights: list[nn.Parameter]) -> nn.RNNBase:
    """Return a module of one layer and direction that shares the weights of the stack."""
    weight_ih, weight_hh, _, _ = weights
    # on device `meta` it creates no weights of its own
    module = cell.module(weight_ih.shape[1], weight_hh.shape[1], batch_first=True, device="meta")
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    for name, weight in zip(names, weights, strict=True):
        setattr(module, name, weight)  # RNNBase also updates its flat list
    return module


def _find_reverse(ids: BatchIds) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index that reverses each row within its length, and leaves padding in place."""
    steps, lengths = torch.arange(int(ids.lengths[0])), ids.lengths[:, None]
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    rows = torch.arange(len(lengths))[:, None]
    device = ids.rectangle.device
    return rows.to(device), places.to(device)


def _embed(model: Model, ids: torch.Tensor) -> torch.Tensor:
    inputs: torch.Tensor = model.embedding(ids)
    if inputs.requires_grad:
        inputs.retain_grad()
    return inputs


def _rows_first(hidden: Hidden) -> State:
    """Return torch's states [L x D, B, H] as [B, L x D x H]."""
    return tuple(state.transpose(0, 1).flatten(1) for state in as_state(hidden))


def _join(states: list[State], dim: int = 0) -> State:
    return tuple(torch.cat(parts, dim) for parts in zip(*states, strict=True))
