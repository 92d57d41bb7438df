"""What each character of a text becomes in front of the model: its bytes after normalization.

A normalizer is asked about each character once, alone. Where it looks at the neighbors too (NFC
joins e and an accent), the bytes are not those of the whole text; `align` notices that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.offsets.flat_bytes import FlatBytes, join_bytes
from seqpack_cli.tokens.offsets.space_rules import normalize_inside
from seqpack_cli.tokens.offsets.spelling import SPACE_CHARACTERS, Writing
from seqpack_cli.tokens.panics import hiding_panics
from seqpack_cli.tokens.vocabulary import catch_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NUM_CHARACTERS = 0x110000
UNKNOWN = -1


class CharacterTable:
    """The bytes of every character seen so far, without spaces unless the writing keeps them.

    `is_space` says which characters are left out, `is_like_space` which others become spaces.

    Several threads may use it: an entry never changes.
    """

    def __init__(self, tokenizer: Tokenizer, writing: Writing) -> None:
        self.bytes: FlatBytes = join_bytes([])
        self.is_space = np.empty(0, bool)
        self.is_like_space = np.empty(0, bool)
        self._lock = threading.Lock()
        self._tokenizer = tokenizer
        self._writing = writing
        self._strings: list[bytes] = []
        self._places = np.full(NUM_CHARACTERS, UNKNOWN, np.int32)

    def look_up(self, text: str) -> np.ndarray:
        """Return the place of each character in `bytes` and `is_space`: int32[len(text)]."""
        codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
        places: np.ndarray = self._places[codes]
        if (places == UNKNOWN).any():
            with self._lock:
                new = np.unique(codes[self._places[codes] == UNKNOWN])
                self._add(new)
            places = self._places[codes]
        return places

    def _add(self, codes: np.ndarray) -> None:
        characters = [chr(code) for code in codes.tolist()]
        first = len(self._strings)
        spelled = list(map(self._spell, characters))
        self._strings += spelled
        self.bytes = join_bytes(self._strings)
        keeps_spaces = self._writing.keeps_spaces
        is_space = np.array([character in SPACE_CHARACTERS for character in characters], bool)
        is_blank = np.array([each.isspace() for each in spelled], bool)
        self.is_space = np.concatenate([self.is_space, is_space & (not keeps_spaces)])
        self.is_like_space = np.concatenate([self.is_like_space, is_blank & ~is_space])
        self._places[codes] = np.arange(first, len(self._strings))  # last: now it may be looked up

    def _spell(self, character: str) -> bytes:
        normalized = character
        normalizer = self._tokenizer.normalizer
        if normalizer is not None and not self._writing.normalizer_writes_bytes:
            try:
                with hiding_panics(DataError), catch_failure():
                    normalized = self._normalize(character)
            except DataError:
                normalized = character  # it fails on a character alone
        return self._writing.spell_text(normalized)

    def _normalize(self, character: str) -> str:
        inside = None
        if self._writing.keeps_spaces:
            inside = normalize_inside(self._tokenizer, character)
        alone: str = self._tokenizer.normalizer.normalize_str(character)
        return alone if inside is None else inside
