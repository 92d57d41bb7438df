"""Masks of a `varlen` batch for attention that is not told where sequences begin.

A token sees the tokens of its own sequence, with causal=True itself and the earlier ones. A padding
cell sees itself alone: a softmax over nothing is NaN, which reaches the gradients of all weights.
FlexAttention skips blocks in which the mask is False throughout. The mask of SDPA has (cells of a
row)² entries for each row: 64 MB for one of 8,192 cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

if TYPE_CHECKING:
    from seqpack_cli.training.batch_tensors import VarlenTensors

MaskMod = Callable[[Any, Any, Any, Any], torch.Tensor]


def make_mask_mod(batch: VarlenTensors, *, causal: bool = True) -> MaskMod:
    """Return the function (b, h, q, kv) -> bool of FlexAttention, for `create_block_mask`.

    `and_masks` of torch.nn.attention.flex_attention joins it to others, such as a sliding window.
    """
    groups = _group_cells(batch)

    def mask_mod(row: Any, _: Any, query: Any, key: Any) -> Any:
        is_seen = groups[row, query] == groups[row, key]
        return is_seen & (query >= key) if causal else is_seen

    return mask_mod


def make_block_mask(batch: VarlenTensors, *, causal: bool = True) -> BlockMask:
    """Return the mask for `flex_attention` over tensors [1 or N, heads, L, H]."""
    num_rows, width = _group_cells(batch).shape
    mask_mod = make_mask_mod(batch, causal=causal)
    return create_block_mask(mask_mod, num_rows, None, width, width, device=batch.ids.device)


def make_attention_mask(
    batch: VarlenTensors, *, causal: bool = True, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return the mask for `scaled_dot_product_attention`, [1 or N, 1, L, L].

    Args:
        dtype: None: bool, True where a token is seen. A floating-point type: 0 there and the
            type's smallest number elsewhere, which models of transformers add to the scores.
    """
    groups = _group_cells(batch)
    is_seen: torch.Tensor = groups[:, None, :, None] == groups[:, None, None, :]
    if causal:
        is_seen = is_seen.tril()
    if dtype is None:
        return is_seen
    scores = torch.zeros_like(is_seen, dtype=dtype)
    return scores.masked_fill_(~is_seen, torch.finfo(dtype).min)


def _group_cells(batch: VarlenTensors) -> torch.Tensor:
    """Return a number for each cell, equal in a sequence, unlike any other in padding, [N, L]."""
    numbers = batch.sequence_ids
    cells = torch.arange(numbers.numel(), device=numbers.device).view(numbers.shape)
    return numbers.where(numbers >= 0, -1 - cells).int().view(-1, numbers.shape[-1])
