"""Networks of random layers over the batches of each layout, with a head and what they return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from random_faults import Fault
from random_layers import Cells, Shape
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

POOLINGS = ("mean", "max", "last", "first", "sums", "attentive")


class Network(nn.Module):
    """Embeddings, layers and a head, over the cells of any layout."""

    def __init__(self, vocab_size: int, layers: list[nn.Module], shape: Shape, draws: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, shape.hidden)
        self.positions = nn.Embedding(1024, shape.hidden) if draws.random() < 0.4 else None
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(layers)
        self.head: nn.Module = nn.Linear(shape.hidden, vocab_size, bias=False)
        self.is_tied = draws.random() < 0.3
        if self.is_tied:
            self.head.weight = self.embedding.weight
        self.fault: Fault | None = None
        self.pooling = None if shape.causal else draws.choice((None, *POOLINGS))
        self.returns = draws.choice(("tensor", "tensor", "tuple", "dict", "output", "hidden"))
        self.is_flat = draws.random() < 0.3

    def compute(self, cells: Cells) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden states and logits: [R, W, ...], or pooled [B, ...]."""
        cells = cells if self.fault is None else self.fault(cells)
        hidden = self.embedding(cells.ids)
        if self.positions is not None:
            hidden = hidden + self.positions(cells.positions)
        hidden = self.dropout(hidden)
        for layer in self.layers:
            hidden = layer(hidden, cells)
        if self.pooling is not None:
            hidden = pool(hidden, cells, self.pooling)
        return hidden, self.head(hidden)

    def wrap(self, hidden: Any, logits: Any) -> Any:
        if self.returns == "tuple":
            return logits, hidden
        if self.returns == "dict":
            return {"logits": logits, "hidden_states": [hidden], "loss": None}
        if self.returns == "output":
            return Output(logits, hidden)
        return hidden if self.returns == "hidden" else logits


@dataclass
class Output:
    """What a model may return instead of a tuple."""

    logits: Any
    hidden_states: Any
    loss: Any = None
    names: dict[str, Any] = field(default_factory=dict)


def pool(hidden: torch.Tensor, cells: Cells, kind: str) -> torch.Tensor:
    """Return one vector for each sequence, [B, H]; zeros for filler."""
    if kind == "sums":
        return pool_with_running_sums(hidden, cells)
    pooled = hidden.new_zeros(cells.num_sequences, hidden.shape[-1])
    for number in range(cells.num_sequences):
        tokens = hidden[cells.find(number)]
        if len(tokens) and kind == "mean":
            pooled[number] = tokens.mean(dim=0)
        elif len(tokens) and kind == "max":
            pooled[number] = tokens.amax(dim=0)
        elif len(tokens) and kind == "attentive":
            pooled[number] = tokens.mean(dim=-1).softmax(dim=0) @ tokens
        elif len(tokens):
            pooled[number] = tokens[-1 if kind == "last" else 0]
    return pooled


def pool_with_running_sums(hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
    """Return sums as differences of running sums, which round differently from row to row."""
    sums = nn.functional.pad(hidden.flatten(0, 1).cumsum(dim=0), (0, 0, 1, 0))
    flat = cells.sequences.flatten()
    pooled = hidden.new_zeros(cells.num_sequences, hidden.shape[-1])
    for number in range(cells.num_sequences):
        place = (flat == number).nonzero()[:, 0]
        if len(place):
            pooled[number] = sums[place[-1] + 1] - sums[place[0]]
    return pooled


class PackedNetwork(Network):
    def forward(self, sequences: PackedSequence) -> Any:
        ids, lengths = pad_packed_sequence(sequences, batch_first=True)
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        hidden, logits = self.compute(read_rows(ids, mask.to(ids.device)))
        if self.pooling is not None:
            return self.wrap(hidden, logits)
        return self.wrap(*(self.pack(each, lengths, sequences) for each in (hidden, logits)))

    def pack(self, values: torch.Tensor, lengths: torch.Tensor, like: PackedSequence) -> Any:
        packed = pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        if like.sorted_indices is None:  # the rows came longest first
            packed = PackedSequence(packed.data, packed.batch_sizes)
        return packed.data if self.is_flat else packed


class PaddedNetwork(Network):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.wrap(*self.compute(read_rows(ids, mask)))


class VarlenNetwork(Network):
    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        seq_idx: torch.Tensor,
        num_sequences: int | None = None,
        **_: Any,
    ) -> Any:
        if num_sequences is None:  # each run of padding is one of its own
            num_sequences = int(seq_idx.max()) + 1
        found = self.compute(Cells(input_ids, position_ids, seq_idx, num_sequences))
        if self.is_flat and self.pooling is None and len(input_ids) == 1:
            return self.wrap(*(each[0] for each in found))  # [S, ...]
        return self.wrap(*found)


def read_rows(ids: torch.Tensor, mask: torch.Tensor) -> Cells:
    """Return the cells of rows of one sequence each, padded on any side."""
    numbers = torch.arange(len(ids), device=ids.device)[:, None].expand(ids.shape)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0).masked_fill(~mask, 0)
    return Cells(ids, positions, numbers.masked_fill(~mask, -1), len(ids))


NETWORKS = {"packed": PackedNetwork, "padded": PaddedNetwork, "varlen": VarlenNetwork}
