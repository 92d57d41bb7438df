"""Random correct models: for `verify --model`, no alarm may sound on any of them.

`random_correct_model(seed)` draws a layout, layers, what they return and how. Rare draws make
models that are hard to judge: large weights that amplify rounding, or sums that round differently
from batch to batch.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from model_zoo import CPU, DEFAULT_CALLS, LEFT, ROWS, ZooModel
from random_faults import FAULTS
from random_layers import (
    Attention,
    Convolution,
    DecayedSum,
    Experts,
    FeedForward,
    Layer,
    Recurrence,
    Shape,
    TorchAttention,
)
from random_networks import NETWORKS
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence

MIXERS = ("attention", "attention", "torch attention", "recurrence", "convolution", "sum")
TORCH_KINDS = (nn.LSTM, nn.GRU, nn.RNN)


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


def call_with_numbers(model: nn.Module, batch: Any) -> Any:
    """Tell the model the number of each cell's sequence, and -1 for padding."""
    rows = (batch.ids, batch.position_ids, batch.sequence_ids)
    return model(*(torch.atleast_2d(each) for each in rows), len(batch.lengths))


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
    call = None
    if layout == "varlen" and (model.pooling is not None or draws.random() < 0.3):
        call = call_with_numbers
    elif model.pooling is None and model.returns == "tensor" and draws.random() < 0.5:
        call = call_with_loss(layout)
    options = {"packed": ({},), "padded": ({}, LEFT), "varlen": ({}, *ROWS)}[layout]
    if layout == "varlen" and model.is_flat:  # outputs are [S, ...]
        options = ({}, ROWS[1])
    return ZooModel(
        f"network {seed}",
        layout,
        make,
        call,
        causal=draw_shape(random.Random(seed)).causal,
        pooled=model.pooling is not None,
        options=draws.choice(options),
    )


def random_wrong_model(seed: int) -> ZooModel:
    """Return the model of a seed with one fault, which may have no effect on it."""
    entry, draws = random_correct_model(seed), random.Random(f"fault {seed}")
    fault = draws.choice(FAULTS[entry.layout])

    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        model = entry.make(vocab_size, device, dtype)
        model.fault = fault
        return model

    return replace(entry, name=f"{entry.name}, {fault.__name__}", make=make)
