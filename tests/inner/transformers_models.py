"""Models of transformers from small configs, correct and wrong: nothing is downloaded."""

from __future__ import annotations

import random
from typing import Any

import torch
from model_zoo import LEFT, ROWS, ZooModel, varlen_arguments
from torch import nn

DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "GPT2", "GPTNeoX", "Gemma2", "Olmo2")
ENCODERS = ("Bert", "Roberta", "ModernBert")
LAYER_TYPES = {"Mistral": 3, "Gemma2": 3}  # the sliding window


def make_model(kind: str, seed: int, dtype: torch.dtype, **options: Any) -> nn.Module:
    """Return a model with random weights that are large enough to show what leaks."""
    import transformers

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 128,
        "use_cache": False,
        **{f"{name}_token_id": 0 for name in ("bos", "eos", "pad", "cls", "sep")},
        **options,
    }
    if kind in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Olmo2"):
        sizes = {"num_key_value_heads": 1, **sizes}
    if kind in LAYER_TYPES:
        sizes = {"sliding_window": LAYER_TYPES[kind], **sizes}
    if kind in ("Qwen3", "Gemma2"):
        sizes = {"head_dim": 8, **sizes}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    architecture = "ForMaskedLM" if kind in ENCODERS else "ForCausalLM"
    if kind == "GPT2":
        architecture = "LMHeadModel"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, kind + architecture)._from_config(config)
        for name, weights in model.named_parameters():
            if weights.ndim > 1 and "norm" not in name.lower():
                nn.init.normal_(weights, std=0.3)
    return model.to(dtype).eval()


def call_with_positions(model: nn.Module, batch: Any) -> Any:
    """Call with the position of each token in its own sequence."""
    positions = (batch.mask.cumsum(dim=1) - 1).clamp(min=0)
    return model(input_ids=batch.ids, attention_mask=batch.mask, position_ids=positions)


def call_by_name(model: nn.Module, batch: Any) -> Any:
    return model(input_ids=batch.ids, attention_mask=batch.mask)


def call_with_block_mask(model: nn.Module, batch: Any) -> Any:
    """Call a bidirectional model with a mask [N, 1, L, L] that keeps sequences apart."""
    arguments = varlen_arguments(batch)
    numbers = arguments["seq_idx"]
    seen = numbers[:, None, :, None] == numbers[:, None, None]
    names = ("input_ids", "position_ids")
    return model(**{name: arguments[name] for name in names}, attention_mask=seen)


def call_with_cache(model: nn.Module, batch: Any) -> Any:
    return model(**{**varlen_arguments(batch), "use_cache": True})


def call_with_ones(model: nn.Module, batch: Any) -> Any:
    arguments = varlen_arguments(batch)
    return model(**arguments, attention_mask=torch.ones_like(arguments["input_ids"]))


def entry(
    name: str, kind: str, layout: str, config: dict[str, Any] | None = None, **options: Any
) -> ZooModel:
    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        seed = options.get("seed", 0)
        return make_model(kind, seed, dtype, vocab_size=vocab_size, **(config or {})).to(device)

    chosen = {key: value for key, value in options.items() if key != "seed"}
    return ZooModel(name, layout, make, causal=kind in DECODERS, **chosen)


def wrong(name: str, kind: str, layout: str, faults: str, **options: Any) -> ZooModel:
    return entry(name, kind, layout, faults=frozenset(faults.split()), **options)


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}
WRONG_TRANSFORMERS = [
    wrong("Llama with a cache", "Llama", "varlen", "alone isolation order", call=call_with_cache),
    wrong("GPT-2 with a cache", "GPT2", "varlen", "alone isolation order", call=call_with_cache),
    wrong(
        "Llama with a mask of ones", "Llama", "varlen", "alone isolation order", call=call_with_ones
    ),
    wrong(
        "GPT-2 counts left padding",
        "GPT2",
        "padded",
        "alone",
        call=call_by_name,
        options=LEFT,
    ),
    wrong("Bert without a block mask", "Bert", "varlen", "alone isolation"),
    wrong(
        "Llama with RoPE of the longest",
        "Llama",
        "padded",
        "alone",
        config={"max_position_embeddings": 4, "rope_parameters": DYNAMIC},
    ),
]


def random_transformers_model(seed: int) -> ZooModel:
    """Return the correct model of a seed."""
    draws = random.Random(seed)
    kind = draws.choice((*DECODERS, *ENCODERS))
    layout = draws.choice(("padded", "varlen"))
    options = draws.choice({"padded": ({}, LEFT), "varlen": ({}, *ROWS)}[layout])
    call = None
    if layout == "varlen" and kind in ENCODERS:
        call = call_with_block_mask
    elif layout == "padded" and (kind == "GPT2" or kind in ENCODERS or draws.random() < 0.5):
        call = call_with_positions
    attention = draws.choice(("sdpa", "eager"))
    if kind in ENCODERS:  # eager adds a mask of bool to the scores
        attention = "sdpa"
    elif kind == "Gemma2":
        attention = "eager"
    return entry(
        f"{kind} {seed}",
        kind,
        layout,
        {"attn_implementation": attention, "tie_word_embeddings": draws.random() < 0.5},
        call=call,
        options=options,
        seed=seed,
    )
