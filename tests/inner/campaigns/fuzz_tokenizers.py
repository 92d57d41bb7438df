"""Kinds of tokenizer.json, which the tokenizers library reads by different code."""

from __future__ import annotations

import functools
import json
from typing import Any

from fuzz_lab import LETTERS
from fuzz_mutators import JsonText, spell

ADDED = {
    **{"id": 3, "content": "d", "single_word": False, "lstrip": False, "rstrip": False},
    **{"normalized": False, "special": True},
}
WORDS = {letter: number for number, letter in enumerate(LETTERS)}
DECODERS: list[Any] = [
    None,
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "Metaspace", "replacement": "a", "prepend_scheme": "always", "split": True},
    {"type": "WordPiece", "prefix": "b", "cleanup": True},
    {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"Regex": "(a|b)+c"}, "content": "dd"},
            *({"type": "ByteFallback"}, {"type": "Fuse"}),
            {"type": "Strip", "content": "a", "start": 1, "stop": 1},
        ],
    },
    {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "c"},
]
MODELS: list[Any] = [
    {"type": "BPE", "vocab": WORDS, "merges": [], "dropout": None, "byte_fallback": False},
    {"type": "WordLevel", "vocab": WORDS, "unk_token": "a"},
    {"type": "Unigram", "unk_id": 0, "vocab": [[letter, -1.5] for letter in LETTERS]},
    {
        **{"type": "WordPiece", "vocab": WORDS, "unk_token": "a"},
        **{"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    },
]


@functools.lru_cache(maxsize=64)
def spell_tokenizer(raw: bytes, kind: int) -> JsonText:
    """Write a tokenizer of some kind; of kind 0, or if that is impossible, the given one."""
    value = json.loads(raw)
    if kind and "model" in value:
        value |= {
            "added_tokens": [ADDED],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {
                **{"type": "Split", "pattern": {"Regex": "[a-c]+"}},
                **{"behavior": "Isolated", "invert": False},
            },
            "decoder": DECODERS[kind % len(DECODERS)],
            "model": MODELS[kind % len(MODELS)],
        }
    return spell(value)
