"""The place of each token with its spaces, and the targets that follow from it at every border."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PIECES
from tokenizer_kinds import ADDED_TOKEN, KINDS, tokenizer_of
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors

from seqpack_cli.tokens.encoders.encoder import open_encoder
from seqpack_cli.tokens.offsets.character_targets import find_character_targets
from seqpack_cli.tokens.offsets.offsets import open_offset_finder
from seqpack_cli.tokens.offsets.spelling import SPACE_CHARACTERS
from seqpack_cli.tokens.target_text import TargetText

SPECIAL = ["<s>", "</s>", "<right>", "<left>", "<both>"]
HARD = (
    *("  ", "\n\n", "\r\n", " \n", "e\u0301", "\u0301", "A\u0323\u0301", "\u1112\u1161\u11ab"),
    *("ﬁ", "´", "\u3000", "🙂", "👩\u200d👩", "中文", "12", "▁", "Ġ", "The cat", " the", "don't"),
    *(ADDED_TOKEN, "<0x0A>", *SPECIAL),
)


def normalized(kind: str, *steps: normalizers.Normalizer) -> Tokenizer:
    tokenizer = Tokenizer.from_str(tokenizer_of(kind))
    tokenizer.normalizer = normalizers.Sequence(list(steps))
    return tokenizer


def split(kind: str, *steps: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer.from_str(tokenizer_of(kind))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    return tokenizer


def trimming() -> Tokenizer:
    tokenizer = Tokenizer.from_str(tokenizer_of("byte_level_with_prefix_space"))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


STRIP_ACCENTS = (normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase())
DIGITS = pre_tokenizers.Digits(individual_digits=True)
WITH_SPACE = pre_tokenizers.ByteLevel(add_prefix_space=True)
OTHERS: dict[str, Callable[[], Tokenizer]] = {
    "always": lambda: split("metaspace", pre_tokenizers.Metaspace(prepend_scheme="always")),
    "never": lambda: split("metaspace", pre_tokenizers.Metaspace(prepend_scheme="never")),
    "accents": lambda: normalized("metaspace", *STRIP_ACCENTS),
    "collapse": lambda: normalized("unigram", normalizers.Replace(Regex(" {2,}"), " ")),
    "strip": lambda: normalized("metaspace", normalizers.Strip()),
    "digits": lambda: split("byte_level", DIGITS, WITH_SPACE),
    "removed": lambda: split("byte_level", pre_tokenizers.Split(" ", "removed"), WITH_SPACE),
    "t5": lambda: split("unigram", pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()),
    "trimming": trimming,
}
DROPS_SPACES = ("word_piece", "word_level", "whitespace_bpe", "t5")
COMPOSES = ("byte_level_nfc", "unigram", "collapse")


def make(kind: str) -> bytes:
    """Return a tokenizer.json that has special tokens which take the spaces beside them too."""
    make_other = OTHERS.get(kind)
    tokenizer = make_other() if make_other else Tokenizer.from_str(tokenizer_of(kind))
    added = [(False, True), (True, False), (True, True)]
    tokenizer.add_special_tokens(
        [
            AddedToken(content, lstrip=left, rstrip=right, normalized=False, special=True)
            for content, (left, right) in zip(SPECIAL[2:], added, strict=True)
        ]
    )
    return tokenizer.to_str().encode()


def find(data: bytes, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Return the offsets of the tokens of each text."""
    encoded = open_encoder("tokenizers", data, allow_special_tokens=True)(texts)
    finder = open_offset_finder(data, allow_special_tokens=True, with_spaces=True)
    pieces = np.split(finder(texts, encoded), np.cumsum(encoded.lengths)[:-1])
    return [list(map(tuple, piece.tolist())) for piece in pieces]


def ask_library(data: bytes, text: str) -> list[tuple[int, int]]:
    """Return the offsets of tokenizers, which a post-processor may trim."""
    library = Tokenizer.from_str(json.dumps({**json.loads(data), "post_processor": None}))
    found: list[tuple[int, int]] = library.encode(text, add_special_tokens=False).offsets
    return found


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip(SPACE_CHARACTERS))
    return start, start + len(piece.strip(SPACE_CHARACTERS))


def is_joined(text: str, found: tuple[int, int], expected: tuple[int, int]) -> bool:
    """Return whether a token has the marks that were composed with its last character too."""
    marks = text[expected[1] : found[1]]
    composed = unicodedata.normalize("NFKC", text[expected[1] - 1 : found[1]])
    return found[0] == expected[0] and bool(marks) and len(composed) <= len(marks)


def texts() -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from([*PIECES, *HARD]), max_size=9).map("".join)


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
@settings(max_examples=15)
@given(documents=st.lists(texts(), min_size=1, max_size=4))
def test_offsets_equal_those_of_the_library(kind: str, documents: list[str]) -> None:
    data = make(kind)
    for text, found in zip(documents, find(data, documents), strict=True):
        for place, expected in zip(found, ask_library(data, text), strict=True):
            is_dropped = kind in DROPS_SPACES and place == trim(text, *expected)
            is_composed = kind in (*COMPOSES, "t5") and is_joined(text, place, expected)
            assert place == expected or is_dropped or is_composed
        assert find(data, [text]) == [found]  # whatever stands beside it


BORDERS = (
    "A: yes\n\nno  \r\n🙂 é中文\t12 a\u3000b<s> </s>x<both>\nThe cat",
    " \n x",
    "",
    "🙂",
    "   ",
)


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
@pytest.mark.parametrize("text", BORDERS)
def test_targets_are_exact_at_every_border(kind: str, text: str) -> None:
    """A target has all its characters behind the border, as tokenizers places them."""
    data = make(kind)
    num_borders = len(text) + 1
    cut = [
        TargetText(text, ((at, len(text)),) * (at < len(text)), b"") for at in range(num_borders)
    ]
    encoded = open_encoder("tokenizers", data, allow_special_tokens=True)([text] * num_borders)
    finder = open_offset_finder(data, allow_special_tokens=True, with_spaces=True)
    offsets = finder([text] * num_borders, encoded)
    found = find_character_targets(cut, offsets, encoded.lengths)
    places = ask_library(data, text)
    if kind in DROPS_SPACES:
        places = [trim(text, *place) for place in places]
    expected = [[at <= start < len(text) for start, _ in places] for at in range(num_borders)]
    assert found.entries.reshape(num_borders, -1).tolist() == expected
    straddling = sum(start < at < end for start, end in places for at in range(num_borders))
    assert found.num_straddling == straddling


@pytest.mark.parametrize(
    ("kind", "text", "offsets"),
    [
        ("byte_level", "a the", [(0, 1), (1, 5)]),
        ("byte_level_with_prefix_space", "a\n\n", [(0, 1), (1, 2), (2, 3)]),
        ("metaspace", "a a", [(0, 1), (1, 3)]),
        ("byte_fallback", "a<s> a", [(0, 1), (1, 4), (4, 5), (4, 6)]),  # ▁a <s> ▁ ▁a
        ("byte_fallback", "a<right> a", [(0, 1), (1, 9), (9, 10)]),  # ▁a <right> ▁a
        ("word_piece", "a \n a", [(0, 1), (4, 5)]),
        ("byte_level_nfc", "xe\u0301 x", [(0, 1), (1, 3), (3, 4), (4, 5)]),
        ("byte_level", "x🙂", [(0, 1), *[(1, 2)] * 4]),
        ("metaspace", "<right>▁a", [(0, 7), (7, 9)]),  # ▁ is not white space
        ("accents", "<right>\u0301 a", [(0, 7), (8, 10)]),
        ("t5", "a ▁b", [(0, 1), (2, 4)]),
        ("digits", " 1", [(0, 1), (1, 2)]),
    ],
)
def test_tokens_have_their_spaces(kind: str, text: str, offsets: list[tuple[int, int]]) -> None:
    assert find(make(kind), [text]) == [offsets]


@pytest.mark.parametrize("kind", DROPS_SPACES)
def test_white_space_that_is_an_added_token_has_its_own_place(kind: str) -> None:
    tokenizer = Tokenizer.from_str(make(kind).decode())
    tokenizer.add_tokens([AddedToken("\n", normalized=False)])
    data = tokenizer.to_str().encode()
    assert find(data, ["a \n\nb c"]) == [[(0, 1), (2, 3), (3, 4), (4, 5), (6, 7)]]
