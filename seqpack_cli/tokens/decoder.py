"""Token ids -> text, for people to read.

Special tokens are shown as they are spelled. A piece that was cut inside a character shows U+FFFD
there: the ids are exact, the text of a piece may not be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

Decoder = Callable[[Sequence[np.ndarray]], list[str]]


@dataclass(frozen=True)
class Spelling:
    """How one id is written."""

    id: int
    token: str | None  # as the vocabulary has it; None if it does not
    text: str  # decoded alone: empty or with U+FFFD where it needs its neighbours


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
    return [
        Spelling(id_, tokenizer.id_to_token(id_), text)
        for id_, text in zip(ids, texts, strict=True)
    ]
