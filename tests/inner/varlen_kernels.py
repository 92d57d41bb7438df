"""Attention over a varlen batch, compared with attention over each sequence alone.

The kernels here are slow and run on any device. They have the parameters of the fast ones, and do
not write what these do not: cells outside of every run, and behind the longest length, are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from varlen_rows import find_ranges

from seqpack_cli.training.batch_tensors import VarlenTensors

Tensors = list[torch.Tensor]  # queries, keys and values


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


def draw_heads(
    batch: VarlenTensors, *, dtype: torch.dtype = torch.float32, requires_grad: bool = True
) -> Tensors:
    """Return queries, keys and values, [1 or N, 2 heads, L, 16], where the batch is."""
    generator = torch.Generator().manual_seed(0)
    rows, width = (1, *batch.ids.shape)[-2:]
    drawn = [torch.randn(rows, 2, width, 16, generator=generator) for _ in range(3)]
    return [each.to(batch.ids.device, dtype).requires_grad_(requires_grad) for each in drawn]


def flatten(rows: torch.Tensor) -> torch.Tensor:
    """Return [1 or N, heads, L, H] as [cells, heads, H]."""
    return rows.transpose(1, 2).flatten(0, 1)


def run_flat(
    kernel: Callable[..., torch.Tensor], heads: Tensors, arguments: dict[str, Any]
) -> torch.Tensor:
    """Run a kernel over [cells, heads, H]; return [1 or N, heads, L, H]."""
    rows, _, width, _ = heads[0].shape
    found = kernel(*(flatten(each) for each in heads), **arguments)
    return found.unflatten(0, (rows, width)).transpose(1, 2)


def assert_is_alone(
    batch: VarlenTensors,
    heads: Tensors,
    found: torch.Tensor,
    *,
    causal: bool,
    tolerance: float = 1e-5,
) -> None:
    """Compare outputs, and gradients where there are some, with those of each sequence alone."""
    assert found.isfinite().all()
    flat = [flatten(each) for each in heads]
    for start, stop in find_ranges(batch):
        inputs = [each[start:stop].transpose(0, 1)[None] for each in flat]
        alone = flatten(scaled_dot_product_attention(*inputs, is_causal=causal))
        inside = flatten(found)[start:stop]
        torch.testing.assert_close(inside, alone, rtol=tolerance, atol=tolerance)
        if not found.requires_grad:
            continue
        gradients = [
            torch.autograd.grad(each.square().sum(), heads, retain_graph=True)
            for each in (inside, alone)
        ]
        assert all(each.isfinite().all() for each in gradients[0])
        torch.testing.assert_close(*gradients, rtol=tolerance, atol=tolerance)
