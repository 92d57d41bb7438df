"""Varlen batches in the kernels that only a GPU runs: each sequence is computed as alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from varlen_kernels import assert_is_alone, draw_heads, run_flat
from varlen_rows import SHAPES, find_ranges, make_tensors

from seqpack_cli.training.batch_tensors import VarlenTensors

pytestmark = pytest.mark.cuda
LONG = {  # more cells than a kernel computes at a time, and padding longer than any sequence
    "long rows": {"rows": [[300, 1, 700], [5]], "width": 1024, "multiple": 8},
    "long row": {"rows": [[1, 400, 129, 128]]},
}
every_shape = pytest.mark.parametrize("shape", [*SHAPES.values(), *LONG.values()])
causal_or_not = pytest.mark.parametrize("causal", [True, False])
BFLOAT16 = 0.05  # numbers of about 1, and gradients of up to 10


def put(shape: dict[str, Any]) -> VarlenTensors:
    return make_tensors(**shape).to("cuda")


@every_shape
def test_numbers_and_borders_are_made_on_the_gpu(shape: dict[str, Any]) -> None:
    batch, expected = put(shape), make_tensors(**shape)
    assert batch.sequence_ids.is_cuda
    assert batch.sequence_ids.cpu().equal(expected.sequence_ids)
    for name, value in expected.to_kwargs("transformers").items():
        found = batch.to_kwargs("transformers")[name]
        is_tensor = isinstance(value, torch.Tensor)
        assert found.is_cuda and found.cpu().equal(value) if is_tensor else found == value, name


@every_shape
@causal_or_not
def test_varlen_attn_of_torch(shape: dict[str, Any], causal: bool) -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="needs torch 2.10")
    batch = put(shape)
    heads = draw_heads(batch, dtype=torch.bfloat16)
    is_old = "is_causal" in varlen.varlen_attn.__annotations__  # torch 2.10
    options = {"is_causal": causal} if is_old else {"window_size": (-1, 0 if causal else -1)}
    found = run_flat(varlen.varlen_attn, heads, {**batch.to_kwargs("torch"), **options})
    assert_is_alone(batch, heads, found, causal=causal, tolerance=BFLOAT16)


@every_shape
@causal_or_not
def test_flash_attn(shape: dict[str, Any], causal: bool) -> None:
    flash_attn = pytest.importorskip("flash_attn")
    batch = put(shape)
    heads = draw_heads(batch, dtype=torch.bfloat16)
    arguments = {**batch.to_kwargs("flash_attn"), "causal": causal}
    found = run_flat(flash_attn.flash_attn_varlen_func, heads, arguments)
    assert_is_alone(batch, heads, found, causal=causal, tolerance=BFLOAT16)


@every_shape
@causal_or_not
def test_compiled_flex_attention(shape: dict[str, Any], causal: bool) -> None:
    """Forward and backward; the tolerance is that of TF32."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    batch = put(shape)
    heads = draw_heads(batch)
    compiled = torch.compile(flex.flex_attention, dynamic=True)
    found = compiled(*heads, block_mask=batch.block_mask(causal=causal))
    assert_is_alone(batch, heads, found, causal=causal, tolerance=0.02)


@every_shape
@pytest.mark.parametrize("name", ["llama", "bamba"])
def test_models_with_flash_attention_and_mamba_layers(name: str, shape: dict[str, Any]) -> None:
    """Bamba has a Mamba layer, which goes by `seq_idx`, and a layer of attention."""
    transformers = pytest.importorskip("transformers")
    for package in ("flash_attn", *(("mamba_ssm", "causal_conv1d") if name == "bamba" else ())):
        pytest.importorskip(package)
    torch.manual_seed(1)
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 32, "attn_layer_indices": [1]}
    config = transformers.AutoConfig.for_model(
        name, vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation="flash_attention_2",
        **(mamba if name == "bamba" else {}),
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to("cuda", torch.bfloat16).eval()
    batch = put(shape)
    with torch.no_grad():
        logits = model(**batch.to_kwargs("transformers")).logits.flatten(0, -2)
        for start, stop in find_ranges(batch):
            alone = model(input_ids=batch.ids.flatten()[None, start:stop], use_cache=False).logits
            torch.testing.assert_close(logits[start:stop], alone[0], rtol=BFLOAT16, atol=BFLOAT16)
