"""Find the place of each token in its text, for any encoder.

Most texts are aligned by what their tokens spell. The others (unknown tokens, characters that are
normalized together) are encoded once more by `tokenizers`, whose offsets are checked: some versions
and tokenizers give wrong ones (huggingface/tokenizers#1553, and a first character that the
normalizer removes shifts all that follow it).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.hidden_specials import hide_special_tokens
from seqpack_cli.tokens.offsets.alignment import Alignment, align
from seqpack_cli.tokens.offsets.characters import CharacterTable
from seqpack_cli.tokens.offsets.flat_bytes import join_bytes
from seqpack_cli.tokens.offsets.library_offsets import LibraryOffsets
from seqpack_cli.tokens.offsets.space_alignment import SpaceAligner, align_without_spaces
from seqpack_cli.tokens.offsets.space_rules import DROPPED, KEPT, find_space_rules
from seqpack_cli.tokens.offsets.spelling import find_writing, parse_tokenizer, spell_tokens
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError
from seqpack_cli.tokens.vocabulary import build_tokenizer

OffsetFinder = Callable[[list[str], EncodedTexts], np.ndarray]
Aligner = Callable[[list[str], EncodedTexts], Alignment]


@functools.lru_cache(maxsize=3)
def open_offset_finder(
    tokenizer_json: bytes, *, allow_special_tokens: bool, with_spaces: bool = False
) -> OffsetFinder:
    """Build a function that returns the offsets of all tokens of some texts: int32[S, 2].

    They are the first character of a token in its text and the end of its last one, in characters.
    The function raises WrongOffsetsError where the place of a token cannot be found.

    Args:
        with_spaces: a token has the spaces that it stands for. A space that the tokenizer added has
            the place of the next character. By default the spaces around a token are left out, so
            a token without text is empty.
    """
    if not allow_special_tokens:
        tokenizer_json = hide_special_tokens(tokenizer_json)  # as it was encoded
    tokenizer = build_tokenizer(tokenizer_json, allow_special_tokens=allow_special_tokens)
    writing = find_writing(parse_tokenizer(tokenizer_json))
    spelled = spell_tokens(tokenizer_json, writing)
    characters = CharacterTable(tokenizer, writing)
    library = LibraryOffsets(tokenizer_json, tokenizer, spelled, characters)
    plain = functools.partial(align, tokens=join_bytes(spelled), characters=characters)
    if not with_spaces:
        return _make_finder(plain, library.find)
    rules = find_space_rules(tokenizer, tokenizer_json, writing, len(spelled))
    if rules.treatment == DROPPED:
        dropping = functools.partial(
            align_without_spaces,
            tokens=join_bytes(spelled),
            characters=characters,
            markers=writing.markers,
        )
        return _make_finder(dropping, functools.partial(library.find_all, keeps_spaces=False))
    find_others = functools.partial(library.find_all, keeps_spaces=True)
    if rules.treatment != KEPT:
        return _make_finder(_align_nothing, find_others)
    writing = writing.keeping_spaces()
    exact = SpaceAligner(
        spell_tokens(tokenizer_json, writing), CharacterTable(tokenizer, writing), rules
    )
    return _make_finder(exact, find_others)


def _make_finder(
    align_texts: Aligner, find_others: Callable[[list[str], np.ndarray], np.ndarray]
) -> OffsetFinder:
    def find_offsets(texts: list[str], encoded: EncodedTexts) -> np.ndarray:
        offsets, is_aligned = align_texts(texts, encoded)
        others = np.flatnonzero(~is_aligned)
        if len(others):
            is_other = np.repeat(~is_aligned, encoded.lengths)
            try:
                found = find_others([texts[i] for i in others], encoded.ids[is_other])
            except WrongOffsetsError as error:
                raise WrongOffsetsError(int(others[error.text]), error.reason) from error
            offsets[is_other] = found
        return offsets

    return find_offsets


def _align_nothing(texts: list[str], encoded: EncodedTexts) -> Alignment:
    return Alignment(np.zeros((len(encoded.ids), 2), np.int32), np.zeros(len(texts), bool))
