"""The models that verify runs: an embedding and a recurrent stack, with torch's initialisation.

One seed gives the same weights on every device. A model that remembers is the same with a bias on
one gate, so that a wrong first token still shows in the last state.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from seqpack_cli.verification.models.cells import Cell

HIDDEN_SIZE = 64
# A model that remembers: its first token still moves an LSTM's outputs by 0.01 after 1,000 steps,
# torch's initialisation forgets it in 20. With full recurrent weights such a model is chaotic, and
# rounding grows to 1e-3 (measured); with a quarter of them it stays below 1e-5 in one layer, and
# below 1e-4 in three.
MEMORY_BIAS = 5.0
MEMORY_RECURRENCE = 0.25


@dataclass(frozen=True)
class Model:
    """An embedding and one or more recurrent layers, in one direction or in both."""

    cell: Cell
    embedding: nn.Embedding
    recurrent: nn.RNNBase

    @property
    def hidden_size(self) -> int:
        """Units of one layer in one direction."""
        return self.recurrent.hidden_size

    @property
    def num_directions(self) -> int:
        """1, or 2 where the model is bidirectional."""
        return 1 + int(self.recurrent.bidirectional)

    def layers(self) -> list[list[list[nn.Parameter]]]:
        """Give the weights [layer][direction], each weight_ih, weight_hh, bias_ih, bias_hh."""
        weights = self.recurrent.all_weights  # torch's order: both directions of a layer in turn
        step = self.num_directions
        return [weights[start : start + step] for start in range(0, len(weights), step)]

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


def build_model(
    cell: Cell,
    *,
    num_embeddings: int,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    remembers: bool,
    num_layers: int = 1,
    bidirectional: bool = False,
    hidden_size: int = HIDDEN_SIZE,
) -> Model:
    """Build a model with torch's own initialisation, the same for one seed.

    Embeddings have half of hidden_size, at least 1.

    Args:
        remembers: the memory gate of every layer and direction has a bias, if the cell has one.
    """
    embedding_size = max(1, hidden_size // 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = nn.Embedding(num_embeddings, embedding_size)
        recurrent = cell.module(
            embedding_size,
            hidden_size,
            num_layers=num_layers,
            bidirectional=bidirectional,
            batch_first=True,
        )
    if remembers and cell.memory_gate is not None:
        gate = slice(cell.memory_gate * hidden_size, (cell.memory_gate + 1) * hidden_size)
        with torch.no_grad():
            for _, weight_hh, _, bias_hh in recurrent.all_weights:
                bias_hh[gate] += MEMORY_BIAS
                weight_hh.mul_(MEMORY_RECURRENCE)
    embedding = embedding.to(device=device, dtype=dtype)
    recurrent = recurrent.to(device=device, dtype=dtype)
    recurrent.flatten_parameters()
    return Model(cell, embedding, recurrent)
