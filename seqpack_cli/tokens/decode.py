"""Decode token ids to text, for display, and split a text where its tokens end.

Special tokens are shown as they are spelled. Where a piece was cut inside a character, its text has
U+FFFD: the ids of a piece are exact, its text may not be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.tokenizer import build_tokenizer, byte_of_character, catch_failure

Decoder = Callable[[Sequence[np.ndarray]], list[str]]
FALLBACK_BYTE = re.compile("<0x([0-9A-F]{2})>")  # a token that stands for a byte
REPLACED = "\ufffd"  # stands for an incomplete character
MAX_IDS = 256  # whose borders are found
MAX_CHARACTERS = 1 << 18  # of the text: all prefixes together may take 256 times as much


@dataclass(frozen=True)
class Spelling:
    """The token and text of one id."""

    id: int
    token: str | None  # as spelled in the vocabulary; None if the id is not in it
    text: str  # decoded alone: empty or with U+FFFD if it needs its neighbors
    bytes: str | None = None  # in hexadecimal, if it is a part of a character


@dataclass(frozen=True)
class TextPiece:
    """The shortest text between two token borders, and its ids."""

    text: str
    ids: tuple[int, ...]


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
    if fallback := FALLBACK_BYTE.fullmatch(token):
        return fallback[1].lower()
    codes = byte_of_character()
    if not codes.keys() >= set(token):
        return None
    return bytes(map(codes.__getitem__, token)).hex(" ")


def split_at_tokens(decode: Decoder, ids: Sequence[int] | np.ndarray) -> list[TextPiece]:
    """Decode ids and split their text where tokens end.

    The text of a token depends on its neighbors: a decoder joins bytes to characters, strips and
    cleans up. So every prefix of the ids is decoded, which takes 10 ms for MAX_IDS: if the text of
    the first k ids begins the whole text, token k ends there; else it ends inside a character. A
    character of several tokens is one piece with all their ids. A token without text belongs to the
    previous piece, or to the first.

    Args:
        ids: of more than MAX_IDS, only the first MAX_IDS are split, up to their last border. A text
            above MAX_CHARACTERS is one piece, and so is one whose prefixes the decoder fails on.

    Returns:
        The pieces; unless ids were cut, their texts joined are the whole text, and their ids `ids`.
    """
    ids = np.asarray(ids, np.int64)
    values = tuple(ids.tolist())
    if not values:
        return []
    (text,) = decode([ids])
    counts = range(1, min(len(values), MAX_IDS) + 1)
    try:
        prefixes = decode([ids[:count] for count in counts if len(text) <= MAX_CHARACTERS])
    except DataError:  # `Strip` fails on texts that are too short
        prefixes = []
    borders = [
        (count, len(prefix))
        for count, prefix in zip(counts, prefixes, strict=False)
        if text.startswith(prefix)
    ]
    longest = accumulate((length for _, length in borders), max)
    ends = {length: count for (count, _), length in zip(borders, longest, strict=True)}
    ends.pop(0, None)  # no text yet: these ids belong to the first piece
    return [
        TextPiece(text[start:end], values[first:last])
        for (start, first), (end, last) in pairwise([(0, 0), *ends.items()])
    ] or [TextPiece(text, values)]
