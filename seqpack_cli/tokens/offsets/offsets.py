"""Find the place of each token in its text, for any encoder.

Most texts are aligned by what their tokens spell. The others (unknown tokens, characters that are
normalized together) are encoded once more by `tokenizers`, whose offsets are checked: some versions
and tokenizers give wrong ones (huggingface/tokenizers#1553, and a first character that the
normalizer removes shifts all that follow it).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, EncodersDifferError
from seqpack_cli.tokens.offsets.alignment import align
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.flat_bytes import join_bytes
from seqpack_cli.tokens.offsets.spelling import find_writing, spell_tokens
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError, check_words, trim
from seqpack_cli.tokens.vocabulary import build_tokenizer, catch_failure

OffsetFinder = Callable[[list[str], EncodedTexts], np.ndarray]


@functools.lru_cache(maxsize=1)
def open_offset_finder(tokenizer_json: bytes, *, allow_special_tokens: bool) -> OffsetFinder:
    """Build a function that returns the offsets of all tokens of some texts: int32[S, 2].

    They are the first character of a token in its text and the end of its last one, in characters;
    the spaces around it are left out, so a token without text is empty. The function raises
    WrongOffsetsError where the place of a token cannot be found.
    """
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
    writing = find_writing(tokenizer_json)
    spelled = spell_tokens(tokenizer_json, writing)
    tokens = join_bytes(spelled)
    characters = CharacterTable(tokenizer, writing)

    def encode(texts: list[str]) -> list[list[int]]:
        with catch_failure():
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def find_by_library(texts: list[str], expected: np.ndarray) -> np.ndarray:
        with catch_failure():
            encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        flat = itertools.chain.from_iterable(ids)
        if not np.array_equal(np.fromiter(flat, np.int64), expected):
            raise EncodersDifferError("different ids from tokenizers for a text with tags")
        places = [
            trim(text, encoding.offsets, [spelled[id_] for id_ in encoding.ids])
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        check_words(texts, ids, places, spelled, encode)
        return np.array(list(itertools.chain.from_iterable(places)), np.int32).reshape(-1, 2)

    def find_offsets(texts: list[str], encoded: EncodedTexts) -> np.ndarray:
        offsets, is_aligned = align(texts, encoded, tokens, characters)
        others = np.flatnonzero(~is_aligned)
        if len(others):
            is_other = np.repeat(~is_aligned, encoded.lengths)
            try:
                found = find_by_library([texts[i] for i in others], encoded.ids[is_other])
            except WrongOffsetsError as error:
                raise WrongOffsetsError(int(others[error.text]), error.reason) from error
            offsets[is_other] = found
        return offsets

    return find_offsets
