"""Encode texts in which special tokens are ids at some places, and text wherever else they occur.

For conversations in which a message spells a special token of the chat template. In a copy of the
tokenizer each special token is spelled otherwise: by as many characters of its own, from a private
area of Unicode. The places are spelled in that way too, so that the offsets stay those of the text.
Everything else of the tokenizer is the same, so the ids are, where no message spells such a token.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.encoders.encoder import REFERENCE, open_encoder
from seqpack_cli.tokens.hidden_specials import name_privately, rename_tokens
from seqpack_cli.tokens.offsets import FoundTargets, PlaceFinder, find_targets
from seqpack_cli.tokens.target_text import Span, TargetText
from seqpack_cli.tokens.vocabulary import build_tokenizer


class PlacedEncoder:
    """Encodes texts with special tokens at the places that they name.

    Args:
        tokenizer_json: of the tokenizer.
        special_tokens: those that may be at a place.
    """

    def __init__(self, tokenizer_json: bytes, special_tokens: tuple[str, ...]) -> None:
        self._private = name_privately(special_tokens)
        self._json = rename_tokens(tokenizer_json, self._private)
        self._encode = open_encoder(REFERENCE, self._json, allow_special_tokens=True)
        self._finder = PlaceFinder(self._json, allow_special_tokens=True)
        self._ids = self._make_table(tokenizer_json)

    def encode(self, text: TargetText) -> tuple[EncodedTexts, FoundTargets]:
        """Return the ids of a text, and its targets."""
        spelled = text._replace(text=self._spell(text.text, text.special or ()))
        encoded = self._encode([spelled.text])
        places = self._finder.find([spelled.text], encoded)
        targets = find_targets([spelled], places, encoded.lengths)
        return EncodedTexts(self._ids[encoded.ids], encoded.lengths), targets

    def _spell(self, text: str, places: Sequence[Span]) -> str:
        """Spell the special tokens at some places in the private way."""
        pieces, end = [], 0
        for start, stop in places:
            pieces += [text[end:start], self._private[text[start:stop]]]
            end = stop
        pieces.append(text[end:])
        own = {private[0] for private in self._private.values()}
        if not own.isdisjoint("".join(pieces[::2])):
            raise AssertionError("a private character: the renderer refuses such texts")
        return "".join(pieces)

    def _make_table(self, tokenizer_json: bytes) -> np.ndarray:
        """Return the id of each token in the tokenizer, by its id in the copy."""
        tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=True)
        ids = tokenizer.get_vocab(with_added_tokens=True)
        content_of = {private: content for content, private in self._private.items()}
        copied = build_tokenizer(self._json, allow_special_tokens=True)
        found = copied.get_vocab(with_added_tokens=True)
        table = np.zeros(max(found.values()) + 1, np.int64)
        for token, id_ in found.items():
            table[id_] = ids[content_of.get(token, token)]
        return table


open_placed_encoder = functools.lru_cache(maxsize=1)(PlacedEncoder)
