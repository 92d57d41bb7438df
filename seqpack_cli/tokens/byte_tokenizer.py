"""The default tokenizer: one id per UTF-8 byte, followed by three special tokens.

It needs no file and no network. Its tokenizer.json, a byte-level BPE without merges, loads in
`tokenizers` and gives the same ids there; here the ids are the bytes themselves.
"""

from __future__ import annotations

import functools
import json

NUM_BYTES = 256
SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>")  # ids 256, 257, 258


def byte_tokenizer_json() -> bytes:
    """Return the tokenizer.json of the byte tokenizer, always the same bytes."""
    added = [
        {
            "id": NUM_BYTES + index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, token in enumerate(SPECIAL_TOKENS)
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": byte_of_character() | {token["content"]: token["id"] for token in added},
                "merges": [],
            },
        },
        ensure_ascii=False,
    ).encode()


@functools.cache
def byte_of_character() -> dict[str, int]:
    """Return GPT-2's table: the printable character that stands for each byte.

    It is the byte's own character where that is printable, else one from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(NUM_BYTES)}
