"""Token ids -> text, for people to read.

Special tokens are shown as they are spelled. A piece that was cut inside a character shows U+FFFD
there: the ids are exact, the text of a piece may not be.
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
REPLACED = "\ufffd"  # what is no whole character


@dataclass(frozen=True)
class Spelling:
    """How one id is written."""

    id: int
    token: str | None  # as the vocabulary has it; None if it does not
    text: str  # decoded alone: empty or with U+FFFD where it needs its neighbours
    bytes: str | None = None  # in hexadecimal, of a part of a character in a byte-level vocabulary


def open_decoder(tokenizer_json: bytes) -> Decoder:
    """Build a function from the ids of some sequences to their texts."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)

    def decode(sequences: Sequence[np.ndarray]) -> list[str]:
        lists = [np.asarray(ids).tolist() for ids in sequences]
        with catch_failure():
            texts: list[str] = tokenizer.decode_batch(lists, skip_special_tokens=False)
        return texts

    return decode


def spell_ids(tokenizer_json: bytes, ids: Sequence[int]) -> list[Spelling]:
    """Give each id with its token and its text."""
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=False)
    texts = open_decoder(tokenizer_json)([np.array([id_]) for id_ in ids])
    tokens = [tokenizer.id_to_token(id_) for id_ in ids]
    return [
        Spelling(id_, token, text, find_bytes(token) if token and REPLACED in text else None)
        for id_, token, text in zip(ids, tokens, texts, strict=True)
    ]


def find_bytes(token: str) -> str | None:
    """Give the bytes that a token stands for, in hexadecimal, if it stands for bytes.

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
