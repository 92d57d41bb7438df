"""Find the targets of texts from the bytes before each border, for byte-level BPE.

A tokenizer that has a token for every byte, and changes no text, writes tokens whose bytes are
those of the text. So the tokens between two borders follow from the bytes before them; no other
place has to be known. Where the tokens have more or fewer bytes than the text, nothing is known.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.byte_tokenizer import byte_of_character
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.character_targets import FoundTargets
from seqpack_cli.tokens.offsets.spelling import (
    find_writing,
    iter_parts,
    parse_tokenizer,
    spell_tokens,
)
from seqpack_cli.tokens.target_text import TargetText

COMPOSING = "NFC"  # the one normalizer that leaves most texts as they are


class BorderTargets:
    """Finds the targets of texts whose tokens spell their bytes."""

    def __init__(self, tokenizer_json: bytes) -> None:
        """Spell the vocabulary: 0.15 s for 50,000 tokens."""
        saved = parse_tokenizer(tokenizer_json)
        normalizers = [part["type"] for part in iter_parts(saved.get("normalizer"))]
        writing = find_writing(saved)
        self._composes = normalizers == [COMPOSING]
        self._is_exact = (
            writing.is_byte_level
            and (self._composes or not normalizers)
            and not (writing.prefix or writing.suffix)
            and _changes_nothing(saved)
        )
        spelled = spell_tokens(tokenizer_json, writing.keeping_spaces()) if self._is_exact else []
        self._num_bytes = np.fromiter(map(len, spelled), np.int32, len(spelled))

    def find(
        self, texts: Sequence[TargetText | None], encoded: EncodedTexts
    ) -> tuple[FoundTargets, np.ndarray]:
        """Return the targets of texts, and which of them are known, bool.

        Args:
            texts: None for one without tokens.
        """
        entries = np.zeros(len(encoded.ids), np.uint8)
        if not self._is_exact:
            return FoundTargets(entries, 0), np.zeros(len(texts), bool)
        num_bytes = self._num_bytes[encoded.ids]
        token_ends = to_offsets(num_bytes)  # token i has the bytes from entry i to i + 1
        bounds = to_offsets(encoded.lengths)
        of_text = token_ends[bounds]
        with_empty = np.searchsorted(bounds, np.flatnonzero(num_bytes == 0), "right") - 1
        lengths = np.diff(of_text)
        lengths[with_empty] = -1  # of no text
        borders: list[int] = []
        counts = []
        for text, length in zip(texts, lengths.tolist(), strict=True):
            found = [] if text is None or length == 0 else self._find_borders(text, length)
            counts.append(-1 if found is None else len(found))
            borders += found or ()
        num_borders = np.array(counts, np.int64)
        is_known = num_borders >= 0
        num_borders[~is_known] = 0
        places = np.array(borders, np.int64) + np.repeat(of_text[:-1], num_borders)
        return _mark(token_ends, places, np.repeat(bounds[1:], num_borders)), is_known

    def _find_borders(self, text: TargetText, num_bytes: int) -> list[int] | None:
        """Return the bytes before each border, None if the tokens are not the bytes of the text."""
        content = text.text
        if self._composes and not unicodedata.is_normalized("NFC", content):
            return None
        places = list(chain.from_iterable(text.targets))
        if content.isascii():
            return places if len(content) == num_bytes else None
        borders, done = [], 0
        for before, place in zip([0, *places], [*places, len(content)], strict=True):
            done += len(content[before:place].encode())
            borders.append(done)
        return borders[:-1] if done == num_bytes else None


def _changes_nothing(saved: dict[str, Any]) -> bool:
    """Return whether a tokenizer.json has a token for every byte, and adds or takes no space."""
    parts = iter_parts(saved.get("pre_tokenizer"))
    adds_space = any(part.get("add_prefix_space", part["type"] == "ByteLevel") for part in parts)
    takes_space = any(it["lstrip"] or it["rstrip"] for it in saved.get("added_tokens") or ())
    has_all = byte_of_character().keys() <= saved["model"]["vocab"].keys()
    return has_all and not adds_space and not takes_space


def _mark(token_ends: np.ndarray, borders: np.ndarray, last: np.ndarray) -> FoundTargets:
    """Return the targets of all texts.

    Args:
        token_ends: where each token begins, and the last one ends, in the bytes of all texts.
        borders: where spans begin and end, in turn.
        last: the end of the tokens of each border's text.
    """
    after = np.searchsorted(token_ends[1:], borders, "right")
    np.minimum(after, last, out=after)  # the next text may begin with tokens without bytes
    is_inside = token_ends[after] != borders
    starts, ends = (after + is_inside)[::2], after[1::2]
    has_tokens = starts < ends
    changes = np.zeros(len(token_ends), np.int8)
    changes[starts[has_tokens]] = 1
    changes[ends[has_tokens]] -= 1  # 0 where the next span begins at once
    entries = np.cumsum(changes[:-1], dtype=np.int8).view(np.uint8)
    return FoundTargets(entries, len(np.unique(after[is_inside])))
