"""Find the place of each token by encoding texts once more with `tokenizers`, and check it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodersDifferError
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.word_check import Place, check_words, cover_lost, trim
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure, usable_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class LibraryOffsets:
    """The offsets of `tokenizers`, as int32[S, 2]; wrong ones raise WrongOffsetsError.

    Args:
        spelled: what each id spells, without spaces.
        characters: without spaces, too.
    """

    def __init__(
        self,
        tokenizer_json: bytes,
        tokenizer: Tokenizer,
        spelled: list[bytes],
        characters: CharacterTable,
    ) -> None:
        self._tokenizer_json = tokenizer_json
        self._tokenizer = tokenizer
        self._spelled = spelled
        self._characters = characters

    def find(self, texts: list[str], expected: np.ndarray) -> np.ndarray:
        """Return the offsets of tokens, the spaces around them left out.

        Args:
            expected: the ids.
        """
        _, trimmed = self._find(self._tokenizer, texts, expected)
        return _join(trimmed)

    def find_all(self, texts: list[str], expected: np.ndarray, *, keeps_spaces: bool) -> np.ndarray:
        """Return the offsets of tokens; one that spells a space alone has a place too.

        A character without a token that was normalized together with the one before it belongs to
        the token before it.

        Args:
            expected: the ids.
            keeps_spaces: whether tokens have spaces at all.
        """
        encodings, _ = self._find(self._untrimmed, texts, expected)
        characters = self._characters
        covered = []
        for text, encoding in zip(texts, encodings, strict=True):
            items = characters.look_up(text)
            has_bytes = (characters.bytes.lengths[items] > 0) & ~characters.is_space[items]
            places = encoding.offsets
            if not keeps_spaces:
                places = trim(text, places)
            covered.append(cover_lost(places, has_bytes.tolist()))
        return _join(covered)

    def _find(
        self, tokenizer: Tokenizer, texts: list[str], expected: np.ndarray
    ) -> tuple[list[Any], list[list[Place]]]:
        """Return the encodings of texts, and the places of their tokens, trimmed and checked."""
        with catch_failure():
            encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        flat = itertools.chain.from_iterable(ids)
        if not np.array_equal(np.fromiter(flat, np.int64), expected):
            raise EncodersDifferError("tokenizers gives other ids for a text with tags or targets")
        places = [
            trim(text, encoding.offsets, [self._spelled[id_] for id_ in encoding.ids])
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        check_words(texts, ids, places, self._spelled, self._encode)
        return encodings, places

    def _encode(self, texts: list[str]) -> list[list[int]]:
        with catch_failure():
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    @functools.cached_property
    def _untrimmed(self) -> Tokenizer:
        """The tokenizer without its post-processor, which may leave spaces out of offsets."""
        saved = json.loads(usable_json(self._tokenizer_json))
        if saved.get("post_processor") is None:
            return self._tokenizer
        without = json.dumps({**saved, "post_processor": None}, ensure_ascii=False).encode()
        allows = not self._tokenizer.encode_special_tokens
        return build_tokenizer(without, allow_special_tokens=allows)


def _join(places: Sequence[list[Place]]) -> np.ndarray:
    return np.array(list(itertools.chain.from_iterable(places)), np.int32).reshape(-1, 2)
