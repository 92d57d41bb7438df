"""A small causal self-attention layer, and three ways to run it over a row of several sequences.

`run_row` is torch over the whole row, with its `position_ids` and a mask made from `cu_seqlens`;
`run_alone` is torch over each sequence alone, which needs neither; `run_plainly` is the formula,
written out. All return one output per token, in the row's order.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

EMBEDDING_SIZE = 32
NUM_HEADS = 2
LONGEST_WAVE = 10_000  # of the position encoding in "Attention Is All You Need"


@dataclass(frozen=True)
class AttentionLayer:
    """Token embedding and the projections to queries, keys and values."""

    embedding: nn.Embedding
    projection: nn.Linear  # to all three, concatenated

    def in_float64(self) -> AttentionLayer:
        """Return a copy with the same weights in float64."""
        projection = copy.deepcopy(self.projection).double()
        return AttentionLayer(copy.deepcopy(self.embedding).double(), projection)


@dataclass(frozen=True)
class Row:
    """A varlen row on the device."""

    ids: torch.Tensor  # int64[S]
    cu_seqlens: torch.Tensor  # int32[B + 1]
    position_ids: torch.Tensor  # int64[S]
    lengths: list[int]  # of the B sequences


def build_layer(
    *, num_embeddings: int, device: torch.device, dtype: torch.dtype, seed: int
) -> AttentionLayer:
    """Build a layer with torch's own initialisation, the same for the same seed.

    Its attention is almost a mean. Still, hiding one key from the last of 4,096 tokens changes that
    token's output by 1e-4 or more (measured), ten times float32's limit on a CPU.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embedding = nn.Embedding(num_embeddings, EMBEDDING_SIZE)
        projection = nn.Linear(EMBEDDING_SIZE, 3 * EMBEDDING_SIZE)
    return AttentionLayer(
        embedding.to(device=device, dtype=dtype), projection.to(device=device, dtype=dtype)
    )


def mask_of(cu_seqlens: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Return the mask bool[S, S]: each token sees those of its sequence up to itself.

    >>> mask_of(torch.tensor([0, 1, 3]), 3).int().tolist()
    [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    tokens = torch.arange(num_tokens, device=cu_seqlens.device, dtype=cu_seqlens.dtype)
    sequences = torch.searchsorted(cu_seqlens, tokens, right=True)
    return (sequences[:, None] == sequences).tril_()


@torch.no_grad()
def run_row(layer: AttentionLayer, row: Row, mask: torch.Tensor) -> torch.Tensor:
    """Run torch's attention over the whole row, [S, E]."""
    heads = _project(layer, row.ids, row.position_ids)
    return _attend(heads, attn_mask=mask)


@torch.no_grad()
def run_alone(layer: AttentionLayer, row: Row) -> torch.Tensor:
    """Run torch's attention over each sequence alone, [S, E]."""
    outputs = []
    for ids in torch.split(row.ids, row.lengths):
        heads = _project(layer, ids, torch.arange(len(ids), device=ids.device))
        outputs.append(_attend(heads, is_causal=True))
    return torch.cat(outputs)


@torch.no_grad()
def run_plainly(layer: AttentionLayer, row: Row) -> torch.Tensor:
    """Run the attention formula over each sequence alone, [S, E]."""
    positions = torch.cat([torch.arange(length) for length in row.lengths]).to(row.ids.device)
    heads = _project(layer, row.ids, positions)
    outputs = []
    for query, key, value in zip(
        *(torch.split(part, row.lengths, dim=1) for part in heads), strict=True
    ):
        scores = query @ key.mT / math.sqrt(query.shape[2])  # [heads, S, S]
        later = torch.ones_like(scores[0], dtype=torch.bool).triu_(1)
        scores.masked_fill_(later, -math.inf)
        weights = scores.sub_(scores.amax(dim=2, keepdim=True)).exp_()
        outputs.append(weights @ value / weights.sum(dim=2, keepdim=True))
    return _join_heads(torch.cat(outputs, dim=1))


def _project(
    layer: AttentionLayer, ids: torch.Tensor, position_ids: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return queries, keys and values, each [heads, S, E / heads]."""
    inputs = layer.embedding(ids)
    inputs = inputs + _encode(position_ids).to(inputs.dtype)
    projected = layer.projection(inputs).unflatten(1, (3, NUM_HEADS, -1))
    return tuple(projected.permute(1, 2, 0, 3))


def _encode(position_ids: torch.Tensor) -> torch.Tensor:
    """Return sine and cosine waves, float64[S, E], which also exist for wrong positions."""
    share = torch.arange(0, EMBEDDING_SIZE, 2, device=position_ids.device) / EMBEDDING_SIZE
    angles = position_ids[:, None].double() * LONGEST_WAVE ** -share.double()
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _attend(heads: tuple[torch.Tensor, ...], **options: Any) -> torch.Tensor:
    # torch's fused kernels need a batch dimension
    query, key, value = (part[None] for part in heads)
    mixed = nn.functional.scaled_dot_product_attention(query, key, value, **options)
    return _join_heads(mixed[0])


def _join_heads(heads: torch.Tensor) -> torch.Tensor:
    return heads.transpose(0, 1).flatten(1)  # [S, E]
