"""Decode token ids to text, for display.

Special tokens are shown as they are spelled. Where a piece was cut inside a character, its text has
U+FFFD: the ids of a piece are exact, its text may not be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqpack_cli.tokens.byte_tokenizer import byte_of_character
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

Decoder = Callable[[Sequence[np.ndarray]], list[str]]
BYTE_FALLBACK = re.compile("<0x([0-9A-Fa-f]{2})>")
REPLACED = "\ufffd"  # stands for an incomplete character


@dataclass(frozen=True)
class Spelling:
    """The token and text of one id."""

    id: int
    token: str | None  # as spelled in the vocabulary; None if the id is not in it
    text: str  # decoded alone: empty or with U+FFFD if it needs its neighbors
    bytes: str | None = (
        None  # in hexadecimal, if it is part of a character in a byte-level vocabulary
    )


def open_decoder(tokenizer_json: bytes) -> Decoder:
    """Return a function that decodes the ids of some sequences to their texts."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)

    def decode(sequences: Sequence[np.ndarray]) -> list[str]:
        lists = [np.asarray(ids).tolist() for ids in sequences]
        with catch_failure():
            texts: list[str] = tokenizer.decode_batch(lists, skip_special_tokens=False)
        return texts

    return decode


def spell_ids(tokenizer_json: bytes, ids: Sequence[int]) -> list[Spelling]:
    """Return the token and text of each id."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    texts = open_decoder(tokenizer_json)([np.array([id_]) for id_ in ids])
    tokens = [tokenizer.id_to_token(id_) for id_ in ids]
    return [
        Spelling(id_, token, text, find_bytes(token) if token and REPLACED in text else None)
        for id_, token, text in zip(ids, tokens, texts, strict=True)
    ]


def find_bytes(token: str) -> str | None:
    """Return the bytes that a token stands for, in hexadecimal, or None if it is not bytes.

    A byte-level vocabulary writes each byte as a character, as GPT-2's does: printable ones of
    Latin-1 as themselves, the others as those from U+0100 on. With byte fallback they are `<0xE0>`.

    >>> find_bytes("Ã©"), find_bytes("Ġthe"), find_bytes("<0xE0>"), find_bytes("雨")
    ('c3 a9', '20 74 68 65', 'e0', None)
    """
    if fallback := BYTE_FALLBACK.fullmatch(token):
        return fallback[1].lower()
    codes = byte_of_character()
    if not all(character in codes for character in token):
        return None
    return bytes(codes[character] for character in token).hex(" ")
