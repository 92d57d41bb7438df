"""Find the targets of texts from the bytes before each border, for byte-level BPE.

A tokenizer that has a token for every byte, and changes no text, writes tokens whose bytes are
those of the text. So the tokens between two borders follow from the bytes before them; no other
place has to be known. Where the tokens have more or fewer bytes than the text, nothing is known.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.byte_tokenizer import byte_of_character
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.offsets.character_targets import FoundTargets
from seqpack_cli.tokens.offsets.spelling import find_writing, iter_parts, spell_tokens
from seqpack_cli.tokens.target_text import TargetText
from seqpack_cli.tokens.vocabulary import usable_json

COMPOSING = "NFC"  # the one normalizer that leaves most texts as they are


class BorderTargets:
    """Finds the targets of texts whose tokens spell their bytes."""

    def __init__(self, tokenizer_json: bytes) -> None:
        """Spell the vocabulary: 0.2 s for 50,000 tokens."""
        saved = json.loads(usable_json(tokenizer_json))
        normalizers = [part["type"] for part in iter_parts(saved.get("normalizer"))]
        writing = find_writing(tokenizer_json)
        self._composes = normalizers == [COMPOSING]
        self._is_exact = (
            writing.is_byte_level
            and (self._composes or not normalizers)
            and not (writing.prefix or writing.suffix)
            and _changes_nothing(saved)
        )
        self._spelled: list[bytes] = []
        if self._is_exact:
            self._spelled = spell_tokens(tokenizer_json, writing.keeping_spaces())
        self._num_bytes = np.fromiter(map(len, self._spelled), np.int64, len(self._spelled))

    def find(
        self, texts: Sequence[TargetText | None], encoded: EncodedTexts
    ) -> tuple[FoundTargets, np.ndarray]:
        """Return the targets of texts, and which of them are known, bool.

        Args:
            texts: None for one without tokens.
        """
        entries = np.zeros(len(encoded.ids), np.uint8)
        is_known = np.zeros(len(texts), bool)
        if not self._is_exact:
            return FoundTargets(entries, 0), is_known
        num_bytes = self._num_bytes[encoded.ids]
        ends = np.cumsum(num_bytes)
        bounds = to_offsets(encoded.lengths)
        of_text = np.concatenate([[0], ends])[bounds]
        has_empty = np.diff(to_offsets(num_bytes == 0)[bounds]) > 0
        num_straddling = 0
        for number, text in enumerate(texts):
            first, last = int(bounds[number]), int(bounds[number + 1])
            if text is None or first == last:
                is_known[number] = first == last
                continue
            borders = self._find_borders(text, int(of_text[number + 1] - of_text[number]))
            if borders is None or has_empty[number]:
                continue
            is_known[number] = True
            num_straddling += _mark(entries, ends, int(of_text[number]), (first, last), borders)
        return FoundTargets(entries, num_straddling), is_known

    def _find_borders(self, text: TargetText, num_bytes: int) -> list[int] | None:
        """Return the bytes before each border, None if the tokens are not the bytes of the text."""
        content = text.text
        if self._composes and not unicodedata.is_normalized("NFC", content):
            return None
        places = [place for span in text.targets for place in span]
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


def _mark(
    entries: np.ndarray,
    ends: np.ndarray,
    base: int,
    tokens: tuple[int, int],
    borders: Sequence[int],
) -> int:
    """Mark the targets of a text; return the number of tokens that straddle a border.

    Args:
        ends: where each token of all texts ends.
        base: where the text begins.
        tokens: the first one of the text, and the end of the last.
        borders: where spans begin and end, in bytes of the text.
    """
    first, last = tokens
    own = ends[first:last]
    after = np.searchsorted(own, np.array(borders, np.int64) + base, "right")
    straddling = set()
    for place, (border, index) in enumerate(zip(borders, after.tolist(), strict=True)):
        is_between = base + border == (own[index - 1] if index else base)
        if not is_between:
            straddling.add(index)
        if place % 2 == 0:
            begin = first + index + (not is_between)
        else:
            entries[begin : first + index] = 1
    return len(straddling)
