"""Masks and borders of varlen batches: attention over a batch is that of each sequence alone."""

from __future__ import annotations

import importlib.util
import inspect
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import varlen_kernels
from torch.nn.functional import scaled_dot_product_attention
from varlen_rows import SHAPES, find_ranges, make_tensors

from seqpack_cli.training.batch_tensors import VarlenTensors

pytestmark = pytest.mark.usefixtures("one_thread")
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
causal_or_not = pytest.mark.parametrize("causal", [True, False])
Tensors = list[torch.Tensor]  # queries, keys and values


def draw_heads(batch: VarlenTensors) -> Tensors:
    """Return queries, keys and values, [1 or N, 2 heads, L, 16]."""
    generator = torch.Generator().manual_seed(0)
    rows, width = (1, *batch.ids.shape)[-2:]
    return [torch.randn(rows, 2, width, 16, generator=generator) for _ in range(3)]


def flatten(rows: torch.Tensor) -> torch.Tensor:
    """Return [1 or N, heads, L, H] as [cells, heads, H]."""
    return rows.transpose(1, 2).flatten(0, 1)


def assert_is_alone(batch: VarlenTensors, heads: Tensors, found: torch.Tensor, causal: bool):
    """Compare outputs, and gradients where there are some, with those of each sequence alone."""
    assert found.isfinite().all()
    flat = [flatten(each) for each in heads]
    for start, stop in find_ranges(batch):
        inputs = [each[start:stop].transpose(0, 1)[None] for each in flat]
        alone = scaled_dot_product_attention(*inputs, is_causal=causal)
        inside = flatten(found)[start:stop]
        torch.testing.assert_close(inside, flatten(alone), rtol=0, atol=1e-5)
        if found.requires_grad:
            gradients = [
                torch.autograd.grad(each.square().sum(), heads, retain_graph=True)
                for each in (inside, alone)
            ]
            assert all(each.isfinite().all() for each in gradients[0])
            torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)


@every_shape
@causal_or_not
def test_attention_with_the_mask_is_that_of_each_sequence(
    shape: dict[str, Any], causal: bool
) -> None:
    batch = make_tensors(**shape)
    heads = [each.requires_grad_() for each in draw_heads(batch)]
    for dtype in (None, torch.float32):
        mask = batch.attention_mask(causal=causal, dtype=dtype)
        assert mask.dtype == (dtype or torch.bool)
        assert mask.shape == (len(heads[0]), 1, heads[0].shape[2], heads[0].shape[2])
        found = scaled_dot_product_attention(*heads, attn_mask=mask)
        assert_is_alone(batch, heads, found, causal)


@every_shape
@causal_or_not
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_takes_the_block_mask(shape: dict[str, Any], causal: bool) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    batch = make_tensors(**shape)
    heads = draw_heads(batch)
    found = flex.flex_attention(*heads, block_mask=batch.block_mask(causal=causal))
    assert_is_alone(batch, heads, found, causal)


def test_block_mask_leaves_out_blocks_of_two_sequences() -> None:
    """Blocks have 128 cells: of 5 x 5, four on the diagonal and one beside it have something."""
    batch = make_tensors([[128, 128, 256, 100]], multiple=128)
    blocks = batch.block_mask().to_dense()[0, 0]
    assert blocks.tolist() == [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]


@pytest.mark.slow
@causal_or_not
def test_compiled_flex_attention_takes_the_block_mask(causal: bool) -> None:
    """Half a minute: on a CPU, torch compiles the forward pass alone, with a C++ compiler."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    batch = make_tensors(**SHAPES["aligned rows"])
    heads = draw_heads(batch)
    compiled = torch.compile(flex.flex_attention)
    found = compiled(*heads, block_mask=batch.block_mask(causal=causal))
    assert_is_alone(batch, heads, found, causal)


def run_flat(
    kernel: Callable[..., torch.Tensor], heads: Tensors, arguments: dict[str, Any]
) -> torch.Tensor:
    """Run a kernel over [cells, heads, H]; return [1 or N, heads, L, H]."""
    rows, _, width, _ = heads[0].shape
    found = kernel(*(flatten(each) for each in heads), **arguments)
    return found.unflatten(0, (rows, width)).transpose(1, 2)


@every_shape
@causal_or_not
def test_kernels_are_told_where_each_sequence_begins(shape: dict[str, Any], causal: bool) -> None:
    batch = make_tensors(**shape)
    heads = [each.requires_grad_() for each in draw_heads(batch)]
    window = (-1, 0) if causal else (-1, -1)
    for target, name, options in [
        ("flash_attn", "flash_attn_varlen_func", {"causal": causal}),
        ("torch", "varlen_attn", {"window_size": window}),
    ]:
        arguments = {**batch.to_kwargs(target), **options}
        found = run_flat(getattr(varlen_kernels, name), heads, arguments)
        assert_is_alone(batch, heads, found, causal)


def test_torch_has_the_names_of_its_target() -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="needs torch 2.10")
    names = list(inspect.signature(varlen.varlen_attn).parameters)
    assert list(make_tensors([[3]]).to_kwargs("torch")) == names[3:7]


def test_megatron_has_the_names_of_its_target() -> None:
    """The module alone: the import of its package takes seconds, and warns."""
    package = importlib.util.find_spec("megatron")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs megatron-core")
    file = Path(package.submodule_search_locations[0]) / "core" / "packed_seq_params.py"
    batch = make_tensors(**SHAPES["aligned"])
    found = runpy.run_path(str(file))["PackedSeqParams"](**batch.to_kwargs("megatron"))
    assert found.cu_seqlens_q_padded is batch.cu_seqlens_padded
