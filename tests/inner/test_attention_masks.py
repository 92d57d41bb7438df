"""Masks and borders of varlen batches: attention over a batch is that of each sequence alone."""

from __future__ import annotations

import importlib.util
import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import varlen_kernels
from torch.nn.functional import scaled_dot_product_attention
from varlen_kernels import assert_is_alone, draw_heads, run_flat
from varlen_rows import SHAPES, make_tensors

pytestmark = pytest.mark.usefixtures("one_thread")
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
causal_or_not = pytest.mark.parametrize("causal", [True, False])


@every_shape
@causal_or_not
def test_attention_with_the_mask_is_that_of_each_sequence(
    shape: dict[str, Any], causal: bool
) -> None:
    batch = make_tensors(**shape)
    heads = draw_heads(batch)
    for dtype in (None, torch.float32):
        mask = batch.attention_mask(causal=causal, dtype=dtype)
        assert mask.dtype == (dtype or torch.bool)
        assert mask.shape == (len(heads[0]), 1, heads[0].shape[2], heads[0].shape[2])
        found = scaled_dot_product_attention(*heads, attn_mask=mask)
        assert_is_alone(batch, heads, found, causal=causal)


@every_shape
@causal_or_not
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_takes_the_block_mask(shape: dict[str, Any], causal: bool) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    batch = make_tensors(**shape)
    heads = draw_heads(batch, requires_grad=False)
    found = flex.flex_attention(*heads, block_mask=batch.block_mask(causal=causal))
    assert_is_alone(batch, heads, found, causal=causal)


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
    heads = draw_heads(batch, requires_grad=False)
    compiled = torch.compile(flex.flex_attention)
    found = compiled(*heads, block_mask=batch.block_mask(causal=causal))
    assert_is_alone(batch, heads, found, causal=causal)


@every_shape
@causal_or_not
def test_kernels_are_told_where_each_sequence_begins(shape: dict[str, Any], causal: bool) -> None:
    batch = make_tensors(**shape)
    heads = draw_heads(batch)
    window = (-1, 0) if causal else (-1, -1)
    for target, name, options in [
        ("flash_attn", "flash_attn_varlen_func", {"causal": causal}),
        ("torch", "varlen_attn", {"window_size": window}),
    ]:
        arguments = {**batch.to_kwargs(target), **options}
        found = run_flat(getattr(varlen_kernels, name), heads, arguments)
        assert_is_alone(batch, heads, found, causal=causal)


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
