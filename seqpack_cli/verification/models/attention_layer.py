"""A small causal self-attention layer, and three ways to run it over several sequences.

`run_row` is torch over all cells of a batch as one row, with its `position_ids` and a mask made
from `cu_seqlens` and `cu_seqlens_padded`; `run_alone` is torch over each sequence alone, which
needs none of them; `run_plainly` is the formula, written out. `run_row` returns one output per
cell, the others one per token, sequence after sequence.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

EMBEDDING_SIZE = 32
NUM_HEADS = 2
LONGEST_WAVE = 10_000  # of the position encoding in "Attention Is All You Need"
# All but cuDNN's, which torch prefers in 16 bits on recent GPUs: it makes a plan for each new
# length. Others measured 23 to 37 ms for one, and a batch may have hundreds of lengths.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


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
    """The cells of a varlen batch on the device, row after row."""

    ids: torch.Tensor  # int64[S]
    borders: torch.Tensor  # int32: where each sequence begins, and the padding after it; at last S
    position_ids: torch.Tensor  # int64[S]
    lengths: list[int]  # of the B sequences
    starts: list[int]  # the first cell of each
    cells: slice | torch.Tensor  # int64, of all tokens, sequence after sequence


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


def mask_of(borders: torch.Tensor, num_cells: int) -> torch.Tensor:
    """Return the mask bool[S, S]: each cell sees those between the same borders up to itself.

    >>> mask_of(torch.tensor([0, 1, 3]), 3).int().tolist()
    [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    cells = torch.arange(num_cells, device=borders.device, dtype=borders.dtype)
    sequences = torch.searchsorted(borders, cells, right=True)
    return (sequences[:, None] == sequences).tril_()


@torch.no_grad()
def run_row(layer: AttentionLayer, row: Row, mask: torch.Tensor) -> torch.Tensor:
    """Run torch's attention over all cells, [S, E]."""
    heads = _project(layer, row.ids, row.position_ids)
    return _attend(heads, attn_mask=mask)


@torch.no_grad()
def run_alone(layer: AttentionLayer, row: Row) -> torch.Tensor:
    """Run torch's attention over each sequence alone, [S, E]."""
    outputs = []
    for ids in torch.split(row.ids[row.cells], row.lengths):
        heads = _project(layer, ids, torch.arange(len(ids), device=ids.device))
        outputs.append(_attend(heads, is_causal=True))
    return torch.cat(outputs)


@torch.no_grad()
def run_plainly(layer: AttentionLayer, row: Row) -> torch.Tensor:
    """Run the attention formula over each sequence alone, [S, E]."""
    positions = torch.cat([torch.arange(length) for length in row.lengths]).to(row.ids.device)
    heads = _project(layer, row.ids[row.cells], positions)
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
    with sdpa_kernel(BACKENDS):
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, **options)
    return _join_heads(mixed[0])


def _join_heads(heads: torch.Tensor) -> torch.Tensor:
    return heads.transpose(0, 1).flatten(1)  # [S, E]
