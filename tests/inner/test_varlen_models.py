"""Models of transformers compute each sequence of a varlen batch as they compute it alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import ROOT, run_page
from varlen_kernels import flash_attn_varlen_func
from varlen_rows import SHAPES, find_ranges, make_tensors

from seqpack_cli.training.batch_tensors import VarlenTensors

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
]

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
NAMES = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
DROPOUTS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LLAMA = {**SIZES, **NAMES, "intermediate_size": 32, "num_key_value_heads": 1}
ROBERTA = {**SIZES, **NAMES, **DROPOUTS, "intermediate_size": 32, "max_position_embeddings": 34}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {**SIZES, **NAMES, "n_positions": 32},
    "llama": LLAMA,
    "mistral": {**LLAMA, "sliding_window": 3},
    "opt": {**SIZES, **NAMES, "word_embed_proj_dim": 16, "ffn_dim": 32},
    "roberta": {**ROBERTA, "is_decoder": True},
}
FIRST_POSITIONS = {"roberta": 2}
BY_POSITIONS = ("gpt2", "llama", "mistral")  # the others need a mask, or flash attention


def make_model(name: str, attention: str) -> Any:
    """Return a small model in float64, with weights so large that what leaks is seen.

    Parts of it compute in float32 all the same: norms, and the softmax of `eager`.
    """
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(name, **CONFIGS[name], attn_implementation=attention)
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    return draw_weights(model)


def draw_weights(model: Any) -> Any:
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return model


def assert_each_is_alone(model: Any, batch: VarlenTensors, inputs: dict[str, Any]) -> None:
    """Compare outputs, gradients and loss of a batch with those of each sequence alone."""
    weights = [each for each in model.parameters() if each.requires_grad]
    found = model(**inputs)
    logits, losses, num_labels = found.logits.flatten(0, -2), [], 0
    for start, stop in find_ranges(batch):
        ids = batch.ids.flatten()[None, start:stop]
        alone = model(input_ids=ids, labels=ids, use_cache=False)
        torch.testing.assert_close(logits[start:stop], alone.logits[0], rtol=0, atol=1e-6)
        gradients = [
            torch.autograd.grad(each.square().sum(), weights, retain_graph=True, allow_unused=True)
            for each in (logits[start:stop], alone.logits)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        if stop - start > 1:
            losses.append(alone.loss * (stop - start - 1))
            num_labels += stop - start - 1
    torch.testing.assert_close(found.loss, sum(losses) / num_labels)
    together, apart = (
        torch.autograd.grad(each, weights, allow_unused=True)
        for each in (found.loss, sum(losses) / num_labels)
    )
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-4)


@every_shape
@pytest.mark.parametrize(
    ("name", "attention"), [*((name, "sdpa") for name in BY_POSITIONS), (BY_POSITIONS[0], "eager")]
)
def test_causal_models_find_sequences_by_their_positions(
    name: str, attention: str, shape: dict[str, Any]
) -> None:
    batch = make_tensors(**shape, labels="same")
    assert_each_is_alone(make_model(name, attention), batch, batch.to_kwargs("transformers"))


@every_shape
@pytest.mark.parametrize(("name", "attention"), [("opt", "sdpa"), ("roberta", "eager")])
def test_a_mask_keeps_sequences_apart_where_positions_do_not(
    name: str, attention: str, shape: dict[str, Any]
) -> None:
    batch, model = make_tensors(**shape, labels="same"), make_model(name, attention)
    first = FIRST_POSITIONS.get(name, 0)
    inputs = batch.to_kwargs("transformers", first_position=first)
    if len(batch.lengths) > 1:
        with pytest.raises(AssertionError):
            assert_each_is_alone(model, batch, inputs)
    mask = batch.attention_mask(dtype=torch.float64)
    assert_each_is_alone(model, batch, {**inputs, "attention_mask": mask})


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let transformers call the slow kernel where it would call flash_attn's."""
    module = pytest.importorskip("transformers.modeling_flash_attention_utils")

    def never_called(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("called for a batch of which it is not known where sequences begin")

    functions = (never_called, flash_attn_varlen_func, never_called, never_called, never_called)
    process = module._lazy_define_process_function(flash_attn_varlen_func)
    found = (functions, (process, process))
    monkeypatch.setattr(module, "lazy_import_flash_attention", lambda *_, **__: found)


@every_shape
@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "roberta"])
def test_flash_attention_is_told_where_sequences_begin(name: str, shape: dict[str, Any]) -> None:
    model = make_model(name, "sdpa")
    model.config._attn_implementation = "flash_attention_2"
    batch = make_tensors(**shape)
    inputs = batch.to_kwargs("transformers", first_position=FIRST_POSITIONS.get(name, 0))
    logits = model(**inputs).logits.flatten(0, -2)
    assert logits.isfinite().all()  # every cell of every layer was written
    model.config._attn_implementation = "sdpa"
    for start, stop in find_ranges(batch):
        alone = model(input_ids=batch.ids.flatten()[None, start:stop]).logits[0]
        torch.testing.assert_close(logits[start:stop], alone, rtol=0, atol=1e-6)


@every_shape
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_mask_of_all_tokens_of_a_sequence_serves_encoders(
    attention: str, shape: dict[str, Any]
) -> None:
    config = transformers.RobertaConfig(**ROBERTA, attn_implementation=attention)
    model = draw_weights(transformers.RobertaModel(config, add_pooling_layer=False).eval())
    batch = make_tensors(**shape)
    inputs = batch.to_kwargs("transformers", first_position=2)
    mask = batch.attention_mask(causal=False, dtype=torch.float32)
    states = model(**inputs, attention_mask=mask).last_hidden_state.flatten(0, -2)
    for start, stop in find_ranges(batch):
        alone = model(input_ids=batch.ids.flatten()[None, start:stop]).last_hidden_state[0]
        torch.testing.assert_close(states[start:stop], alone, rtol=0, atol=1e-4)


def test_mamba_layers_without_their_kernels_refuse_several_sequences() -> None:
    """They are not told where sequences begin by positions, so `seq_idx` is never left out."""
    sizes = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "attn_layer_indices": [1]}
    model = transformers.BambaForCausalLM(transformers.BambaConfig(**LLAMA, **sizes))
    inputs = make_tensors([[4, 3]]).to_kwargs("transformers")
    with pytest.raises(ValueError, match="can't keep packed sequences apart"):
        model(**inputs)
    del inputs["seq_idx"]
    assert model(**inputs).logits.isfinite().all()


def test_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all batches of rows of one length are compiled once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    torch.compiler.reset()
    found = run_page((ROOT / "docs" / "kernels.md").read_text(), "console", "py")
    assert len(found["dataset"]) > 10
    assert found["num_compilations"] == 1
