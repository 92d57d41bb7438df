"""Attention kernels for sequences of one row after another, slow and on any device.

They have the parameters of the fast ones, and what these leave out is left out here too: cells
outside of every run, and behind the longest length, are never written, so they are NaN.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Parameters of Dao-AILab/flash-attention, flash_attn_interface.py; tensors [S, heads, H]."""
    assert (type(max_seqlen_q), type(max_seqlen_k)) == (int, int)
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert cu_seqlens_q.equal(cu_seqlens_k)
    assert not dropout_p
    parts = [q.new_full((int(cu_seqlens_q[0]), *q.shape[1:]), torch.nan)]
    for start, stop in pairwise(cu_seqlens_q.tolist()):
        inner = slice(start, min(stop, start + max_seqlen_q))
        rows = [each[inner].transpose(0, 1) for each in (q, k, v)]
        found = scaled_dot_product_attention(
            *rows, is_causal=causal, scale=softmax_scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        unwritten = q.new_full((stop - inner.stop, *q.shape[1:]), torch.nan)
        parts += [found.transpose(0, 1), unwritten]
    parts += [q.new_full((len(q) - int(cu_seqlens_q[-1]), *q.shape[1:]), torch.nan)]
    return torch.cat(parts)


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Parameters of torch.nn.attention.varlen.varlen_attn, which runs on a GPU alone."""
    causal = window_size == (-1, 0)
    return flash_attn_varlen_func(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, causal=causal
    )
