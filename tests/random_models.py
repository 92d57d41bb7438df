"""Random correct models: for `verify --model`, no alarm may sound on any of them.

`random_correct_model(seed)` draws a layout, layers, what they return and how. Rare draws make
models that are hard to judge: large weights that amplify rounding, or sums that round differently
from batch to batch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from model_zoo import CPU, DEFAULT_CALLS, ZooModel
from random_networks import (
    Attention,
    Cells,
    Convolution,
    DecayedSum,
    Experts,
    FeedForward,
    Layer,
    Recurrence,
    Shape,
    TorchAttention,
)
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

MIXERS = ("attention", "attention", "torch attention", "recurrence", "convolution", "sum")
POOLINGS = ("mean", "max", "last", "first", "sums", "attentive")
TORCH_KINDS = (nn.LSTM, nn.GRU, nn.RNN)


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
        self.pooling = None if shape.causal else draws.choice((None, *POOLINGS))
        self.returns = draws.choice(("tensor", "tensor", "tuple", "dict", "output", "hidden"))
        self.is_flat = draws.random() < 0.3

    def compute(self, cells: Cells) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden states and logits: [R, W, ...], or pooled [B, ...]."""
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
        cu_seq_lens_q: torch.Tensor,
        **_: Any,
    ) -> Any:
        steps = torch.arange(input_ids.shape[1], device=input_ids.device)
        numbers = torch.bucketize(steps, cu_seq_lens_q[1:], right=True)[None]
        cells = Cells(input_ids, position_ids, numbers, len(cu_seq_lens_q) - 1)
        found = self.compute(cells)
        if self.is_flat and self.pooling is None:
            return self.wrap(*(each[0] for each in found))  # [S, ...]
        return self.wrap(*found)


def read_rows(ids: torch.Tensor, mask: torch.Tensor) -> Cells:
    """Return the cells of rows of one sequence each, padded on any side."""
    numbers = torch.arange(len(ids), device=ids.device)[:, None].expand(ids.shape)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0).masked_fill(~mask, 0)
    return Cells(ids, positions, numbers.masked_fill(~mask, -1), len(ids))


NETWORKS = {"packed": PackedNetwork, "padded": PaddedNetwork, "varlen": VarlenNetwork}


def draw_shape(draws: random.Random) -> Shape:
    num_heads = draws.choice((1, 2, 4))
    return Shape(
        hidden=num_heads * draws.choice((4, 8, 16)),
        num_heads=num_heads,
        num_key_heads=draws.choice([n for n in (1, 2, 4) if num_heads % n == 0]),
        causal=draws.random() < 0.5,
        window=draws.choice((None, None, 2, 5)),
        dropout=draws.choice((0.0, 0.0, 0.1, 0.5)),
    )


def draw_mixer(draws: random.Random, shape: Shape) -> nn.Module:
    kind = draws.choice(MIXERS)
    if kind == "torch attention":
        return TorchAttention(shape)
    if kind == "recurrence":
        return Recurrence(shape, draws.choice(TORCH_KINDS), draws.choice((1, 1, 2, 3)))
    if kind == "convolution":
        return Convolution(shape, reach=draws.choice((1, 3)), depthwise=draws.random() < 0.5)
    if kind == "sum":
        return DecayedSum(shape) if shape.causal else FeedForward(shape, "gelu")
    kernel = draws.choice(("sdpa", "sdpa", "infinity", "lowest"))
    return Attention(shape, rotary=draws.random() < 0.5, kernel=kernel)


def draw_norm(draws: random.Random, shape: Shape) -> nn.Module | None:
    kind = draws.choice((nn.LayerNorm, nn.LayerNorm, nn.RMSNorm, None))
    return None if kind is None else kind(shape.hidden)


def draw_layers(draws: random.Random, shape: Shape) -> list[nn.Module]:
    before, layers = draws.random() < 0.7, []
    for _ in range(draws.choice((1, 2, 2, 3, 6))):
        experts = draws.random() < 0.1
        kind = draws.choice(("gelu", "relu", "swiglu"))
        forward = Experts(shape) if experts else FeedForward(shape, kind)
        for each in (draw_mixer(draws, shape), forward):
            layers.append(Layer(each, draw_norm(draws, shape), before=before))
    return layers


def draw_network(layout: str, seed: int, trains: bool) -> Any:
    """Return the function that makes one model, with the same weights each time."""

    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        draws = random.Random(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            shape = draw_shape(draws)
            model = NETWORKS[layout](vocab_size, draw_layers(draws, shape), shape, draws)
            scale = draws.choice((0.1, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0))
            with torch.no_grad():
                for weights in model.layers.parameters():
                    weights *= scale
        return model.to(device, dtype).train(trains)

    return make


def call_with_loss(layout: str) -> Any:
    """Return a call that returns logits with the loss of the batch's labels."""

    def call(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        logits = DEFAULT_CALLS[layout](model, batch)
        values = logits.data if isinstance(logits, PackedSequence) else logits
        losses = cross_entropy(values.flatten(0, -2), batch.labels.flatten(), reduction="sum")
        return {"loss": losses / (batch.labels != -100).sum().clamp(min=1), "logits": logits}

    return call


def random_correct_model(seed: int, *, trains: bool = False) -> ZooModel:
    """Return the correct model of a seed.

    Args:
        trains: leave it in train mode, where it may have dropout.
    """
    draws = random.Random(seed)
    layout = draws.choice(tuple(NETWORKS))
    make = draw_network(layout, seed, trains)
    model = make(2, CPU, torch.float32)
    returns_logits = model.pooling is None and model.returns == "tensor"
    return ZooModel(
        f"network {seed}",
        layout,
        make,
        call_with_loss(layout) if returns_logits and draws.random() < 0.5 else None,
        causal=draw_shape(random.Random(seed)).causal,
        pooled=model.pooling is not None,
        padding_side=draws.choice(("right", "left")),
    )
