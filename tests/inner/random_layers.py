"""Layers of correct models: each mixes tokens of one sequence only, wherever they lie.

A layer takes hidden states [R, W, H] and `Cells`, which say for each cell of the same rectangle the
sequence and the position in it. So one layer serves padded rows, rows that several sequences share,
and a PackedSequence that was padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu, relu, scaled_dot_product_attention, silu
from torch.nn.utils.rnn import pack_sequence, unpack_sequence


@dataclass(frozen=True)
class Cells:
    """What lies in each cell of a rectangle [R, W]."""

    ids: torch.Tensor
    positions: torch.Tensor  # from 0 in each sequence; 0 in padding
    sequences: torch.Tensor  # number in the batch; -1 in padding
    num_sequences: int

    @property
    def is_token(self) -> torch.Tensor:
        return self.sequences >= 0

    def find(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows and columns of the tokens of a sequence, in order."""
        rows, columns = (self.sequences == number).nonzero(as_tuple=True)
        return rows, columns


@dataclass(frozen=True)
class Shape:
    """What the layers of one model share."""

    hidden: int
    num_heads: int
    num_key_heads: int
    causal: bool
    window: int | None
    dropout: float


def find_seen(cells: Cells, shape: Shape) -> torch.Tensor:
    """Return bool[R, W, W], whether a cell attends to another; padding attends to itself."""
    before = cells.positions[:, :, None] - cells.positions[:, None, :]
    seen = (cells.sequences[:, :, None] == cells.sequences[:, None, :]) & cells.is_token[:, None]
    if shape.causal:
        seen = seen & (before >= 0)
    if shape.window is not None:
        seen = seen & (before.abs() < shape.window)
    return seen | torch.eye(seen.shape[-1], dtype=torch.bool, device=seen.device)


def rotate(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return [R, heads, W, D] with rotary positions."""
    half = values.shape[-1] // 2
    steps = torch.arange(half, device=values.device, dtype=torch.float64)
    angles = positions[:, None, :, None].double() * 100.0 ** (-steps / half)
    cos, sin = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
    first, second = values[..., :half], values[..., half : 2 * half]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    """Grouped-query attention, by hand or with torch's kernel."""

    def __init__(self, shape: Shape, *, rotary: bool, kernel: str) -> None:
        super().__init__()
        self.shape, self.rotary, self.kernel = shape, rotary, kernel
        self.size = shape.hidden // shape.num_heads
        self.query = nn.Linear(shape.hidden, shape.hidden)
        self.key_value = nn.Linear(shape.hidden, 2 * shape.num_key_heads * self.size)
        self.out = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        rows, width, _ = hidden.shape
        query = self.query(hidden).view(rows, width, -1, self.size).transpose(1, 2)
        both = self.key_value(hidden).view(rows, width, 2, -1, self.size)
        key, value = both.permute(2, 0, 3, 1, 4)
        if self.rotary:
            query, key = rotate(query, cells.positions), rotate(key, cells.positions)
        shared = self.shape.num_heads // self.shape.num_key_heads
        key, value = (each.repeat_interleave(shared, dim=1) for each in (key, value))
        seen = find_seen(cells, self.shape)[:, None]
        dropout = self.shape.dropout if self.training else 0.0
        if self.kernel == "sdpa":
            mixed = scaled_dot_product_attention(
                query, key, value, attn_mask=seen, dropout_p=dropout
            )
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(self.size)
            lowest = -math.inf if self.kernel == "infinity" else torch.finfo(scores.dtype).min
            weights = scores.masked_fill(~seen, lowest).softmax(dim=-1)
            mixed = nn.functional.dropout(weights, dropout) @ value
        return self.out(mixed.transpose(1, 2).reshape(rows, width, -1))


class TorchAttention(nn.Module):
    """torch's own module, with a mask for each head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.attention = nn.MultiheadAttention(
            shape.hidden, shape.num_heads, dropout=shape.dropout, batch_first=True
        )

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        hides = ~find_seen(cells, self.shape).repeat_interleave(self.shape.num_heads, dim=0)
        mixed, _ = self.attention(hidden, hidden, hidden, attn_mask=hides, need_weights=False)
        return mixed


class Recurrence(nn.Module):
    """An LSTM, GRU or RNN over each sequence, which a PackedSequence keeps apart."""

    def __init__(self, shape: Shape, kind: type[nn.RNNBase], num_layers: int) -> None:
        super().__init__()
        both = not shape.causal
        self.recurrence = kind(
            shape.hidden,
            shape.hidden // (1 + both),
            num_layers,
            bidirectional=both,
            dropout=shape.dropout if num_layers > 1 else 0.0,
        )

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        places = [cells.find(number) for number in range(cells.num_sequences)]
        places = [place for place in places if len(place[0])]
        if not places:
            return torch.zeros_like(hidden)
        packed = pack_sequence([hidden[place] for place in places], enforce_sorted=False)
        mixed = torch.zeros_like(hidden)
        for place, each in zip(places, unpack_sequence(self.recurrence(packed)[0]), strict=True):
            mixed[place] = each
        return mixed


class Convolution(nn.Module):
    """A convolution over the neighbours that belong to the same sequence."""

    def __init__(self, shape: Shape, *, reach: int, depthwise: bool) -> None:
        super().__init__()
        offsets = range(reach + 1) if shape.causal else range(-reach, reach + 1)
        self.offsets = list(offsets)
        inputs = 1 if depthwise else shape.hidden
        self.weight = nn.Parameter(torch.randn(len(self.offsets), shape.hidden, inputs))
        with torch.no_grad():
            self.weight /= math.sqrt(inputs * len(self.offsets))

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        mixed = torch.zeros_like(hidden)
        for offset, weight in zip(self.offsets, self.weight, strict=True):
            sequences = cells.sequences.roll(offset, dims=1)
            step = cells.positions - cells.positions.roll(offset, dims=1)
            same = (cells.sequences == sequences) & (step == offset) & cells.is_token
            near = hidden.roll(offset, dims=1).masked_fill(~same[..., None], 0.0)
            mixed = mixed + (near * weight[:, 0] if weight.shape[1] == 1 else near @ weight.T)
        return mixed


class DecayedSum(nn.Module):
    """A linear recurrence, h = a * h + x, step by step, that begins anew with each sequence."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.randn(shape.hidden))
        self.out = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        decay, state, states = self.decay.sigmoid(), torch.zeros_like(hidden[:, 0]), []
        for step in range(hidden.shape[1]):
            goes_on = (cells.positions[:, step] > 0)[:, None]
            state = torch.where(goes_on, decay * state, 0.0) + hidden[:, step]
            states.append(state)
        return self.out(torch.stack(states, dim=1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.up = nn.Linear(shape.hidden, (4 if kind == "swiglu" else 2) * shape.hidden)
        self.down = nn.Linear(2 * shape.hidden, shape.hidden)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: torch.Tensor, _: Any = None) -> torch.Tensor:
        hidden = self.up(hidden)
        if self.kind == "swiglu":
            gate, hidden = hidden.chunk(2, dim=-1)
            hidden = silu(gate) * hidden
        else:
            hidden = gelu(hidden) if self.kind == "gelu" else relu(hidden)
        return self.dropout(self.down(hidden))


class Experts(nn.Module):
    """Two feed-forward layers; each token is computed by the one that its router chooses."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.hidden, 2)
        self.experts = nn.ModuleList(FeedForward(shape, "gelu") for _ in range(2))

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        chosen = self.router(hidden).argmax(dim=-1)
        mixed = torch.zeros_like(hidden)
        for number, expert in enumerate(self.experts):
            place = (chosen == number) & cells.is_token
            mixed[place] = expert(hidden[place])
        return mixed


class Layer(nn.Module):
    """A mixing layer with its normalization, before, after or none, and the residual."""

    def __init__(self, mixer: nn.Module, norm: nn.Module | None, *, before: bool) -> None:
        super().__init__()
        self.mixer, self.norm, self.before = mixer, norm or nn.Identity(), before

    def forward(self, hidden: torch.Tensor, cells: Cells) -> torch.Tensor:
        if self.before:
            return hidden + self.mixer(self.norm(hidden), cells)
        return self.norm(hidden + self.mixer(hidden, cells))
