"""The place of each token in its text: exact for every kind of tokenizer, or an error."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PIECES
from tokenizer_kinds import ADDED_TOKEN, KINDS, sample_texts, tokenizer_of
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from seqpack_cli.tokens.byte_tokenizer import byte_tokenizer_json
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts, EncodersDifferError
from seqpack_cli.tokens.encoders.encoder import open_encoder
from seqpack_cli.tokens.encoders.fastokens_encoder import is_installed
from seqpack_cli.tokens.hidden_specials import hide_special_tokens
from seqpack_cli.tokens.offsets.offsets import open_offset_finder
from seqpack_cli.tokens.offsets.spelling import SPACE_CHARACTERS
from seqpack_cli.tokens.offsets.word_check import WrongOffsetsError, check_words

HARD = (
    *("e\u0301", "\u0301", "\u1112\u1161\u11ab", "A\u0323\u0301", "ﬁ", "…", "½", "´", "İ", "ß"),
    *("\u200b", "\u3000", "\xad", "\x10", "🙂", "👩\u200d👩", "##s", "<0x41>", "[CLS]", "12"),
    *("don't", "The cat", "中文", "ไทย", ADDED_TOKEN, ADDED_TOKEN[:3]),
)
NORMALIZERS = {
    "nfkc": normalizers.NFKC(),
    "lowercase": normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    ),
    "digits": normalizers.Replace(Regex(r"\d"), "0"),
    "longer": normalizers.Replace("a", "xyz"),
    "dropped": normalizers.Replace("a", ""),
    "nmt": normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
    "bert": normalizers.BertNormalizer(),
}


def texts() -> st.SearchStrategy[str]:
    """Texts of pieces that tokenizers and normalizers treat specially."""
    return st.lists(st.sampled_from([*PIECES, *HARD]) | st.text(max_size=3), max_size=9).map(
        lambda pieces: "".join(pieces).replace("▁", "_")
    )


def find(data: bytes, documents: list[str], encoder: str = "tokenizers") -> list[list[list[int]]]:
    """Return the offsets of the tokens of each document."""
    encoded = open_encoder(encoder, data, allow_special_tokens=False)(documents)
    offsets = open_offset_finder(data, allow_special_tokens=False)(documents, encoded)
    return [piece.tolist() for piece in np.split(offsets, np.cumsum(encoded.lengths)[:-1])]


def library_of(data: bytes) -> Tokenizer:
    library = Tokenizer.from_str(hide_special_tokens(data).decode())
    library.encode_special_tokens = True
    return library


def trim(text: str, start: int, end: int) -> list[int]:
    while start < end and text[start] in SPACE_CHARACTERS:
        start += 1
    while start < end and text[end - 1] in SPACE_CHARACTERS:
        end -= 1
    return [start, end]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(documents=st.lists(texts(), min_size=1, max_size=4))
def test_offsets_equal_those_of_the_library_without_spaces(kind: str, documents: list[str]) -> None:
    data = tokenizer_of(kind).encode()
    library = library_of(data)
    for text, found in zip(documents, find(data, documents), strict=True):
        expected = library.encode(text, add_special_tokens=False).offsets
        assert len(found) == len(expected)
        for (start, end), place in zip(found, expected, strict=True):
            is_lost = place[0] == place[1]  # tokenizers 0.20.0 with ignore_merges
            assert start == end or is_lost or [start, end] == trim(text, *place)
        assert find(data, [text]) == [found]  # whatever stands beside it


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("kind", ["byte_level", "metaspace", "word_piece", "unigram", "word_level"])
@settings(max_examples=5)
@given(documents=st.lists(texts(), min_size=1, max_size=4))
def test_normalized_texts_have_offsets_too(
    kind: str, normalizer: str, documents: list[str]
) -> None:
    """Never an error, in the text, in order; each non-empty token overlaps the library's place."""
    tokenizer = Tokenizer.from_str(tokenizer_of(kind))
    tokenizer.normalizer = NORMALIZERS[normalizer]
    tokenizer.add_tokens(
        [AddedToken("12", lstrip=True, rstrip=True), AddedToken("don't", single_word=True)]
    )
    data = tokenizer.to_str().encode()
    library = library_of(data)
    for text, found in zip(documents, find(data, documents), strict=True):
        expected = library.encode(text, add_special_tokens=False).offsets
        for (start, end), place in zip(found, expected, strict=True):
            assert start == end or place[0] <= start < end <= place[1]


@pytest.mark.parametrize("encoder", ["bytes", "fastokens"])
@pytest.mark.skipif(not is_installed(), reason="fastokens")
def test_offsets_are_the_same_for_every_encoder(encoder: str) -> None:
    data = byte_tokenizer_json() if encoder == "bytes" else tokenizer_of("byte_level").encode()
    documents = [*sample_texts(), "", "é 🙂\u3000x"]
    assert find(data, documents, encoder) == find(data, documents)


def test_token_of_a_prefix_alone_is_empty() -> None:
    """Metaspace puts a space before the text, which the library places on the first character."""
    data = tokenizer_of("metaspace").encode()
    assert library_of(data).encode("中 a", add_special_tokens=False).offsets[0] == (0, 1)
    assert find(data, ["中 a"]) == [[[0, 0], [0, 1], [0, 1], [0, 1], [2, 3]]]


def charsmap_without(character: str) -> bytes:
    """Return a compiled map of SentencePiece that removes one ASCII character, and nothing else.

    Its header, then a trie in units of 32 bits (label, bit 8: has a leaf, from bit 10: where its
    children are), then the replacements, each ended by a NUL.
    """
    code = ord(character)
    trie = [0] * 256
    trie[0] = 128 << 10
    trie[128 ^ code] = code | 1 << 8 | 1 << 10
    return struct.pack(f"<I{len(trie)}I", 4 * len(trie), *trie) + b"\0"


@pytest.fixture
def removing() -> bytes:
    """A word-level tokenizer for which the library's offsets are wrong after a first \\x10."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))  # noqa: S106
    tokenizer.normalizer = normalizers.Precompiled(charsmap_without("\x10"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer.to_str().encode()


def test_wrong_offsets_of_the_library_are_repaired_where_the_tokens_spell_the_text(
    removing: bytes,
) -> None:
    assert library_of(removing).encode("\x10a b").offsets == [(0, 1), (2, 3)]
    assert find(removing, ["\x10a b"]) == [[[1, 2], [3, 4]]]


@pytest.mark.parametrize("with_spaces", [False, True])
def test_wrong_offsets_of_the_library_are_an_error_elsewhere(
    removing: bytes, with_spaces: bool
) -> None:
    texts = ["b a", "?", "\x10? b"]
    encoded = open_encoder("tokenizers", removing, allow_special_tokens=False)(texts)
    finder = open_offset_finder(removing, allow_special_tokens=False, with_spaces=with_spaces)
    with pytest.raises(WrongOffsetsError) as caught:
        finder(texts, encoded)
    assert caught.value.text == 2
    assert caught.value.reason == "the tokens at 'b' spell nothing, expected 'b'"


def check(text: str, tokens: list[tuple[str, int, int]]) -> None:
    """Check the places of tokens that are words or pieces of words, which spell themselves."""
    words = sorted({word for word, _, _ in tokens} | set(text.split()))
    check_words(
        [text],
        [[words.index(word) for word, _, _ in tokens]],
        [[(start, end) for _, start, end in tokens]],
        [word.encode() for word in words],
        lambda pieces: [[words.index(word) for word in piece.split()] for piece in pieces],
    )


def test_right_places_pass() -> None:
    check("ab cd", [("a", 0, 1), ("b", 1, 2), ("cd", 3, 5)])
    check("ab cd", [("abcd", 0, 5)])


@pytest.mark.parametrize(
    "tokens",
    [
        [("ab", 0, 0), ("cd", 2, 2)],  # huggingface/tokenizers#1553
        [("a", 0, 0), ("b", 1, 2), ("cd", 3, 5)],
        [("ab", 3, 5), ("cd", 3, 5)],
        [("ab", 3, 5), ("cd", 0, 2)],
        [("ab", 0, 2), ("cd", 6, 8)],
        [("ab", 0, 2)],
    ],
)
def test_wrong_places_are_found(tokens: list[tuple[str, int, int]]) -> None:
    with pytest.raises(WrongOffsetsError):
        check("ab cd", tokens)


def test_encoder_with_other_ids_than_the_library_is_refused() -> None:
    data = tokenizer_of("word_level").encode()
    other = EncodedTexts(np.array([1]), np.array([1]))
    with pytest.raises(EncodersDifferError):
        open_offset_finder(data, allow_special_tokens=False)(["unknown"], other)


def test_tokenizer_with_another_space_mark_is_understood() -> None:
    saved = json.loads(tokenizer_of("metaspace"))
    saved["pre_tokenizer"]["replacement"] = "_"
    saved["model"]["vocab"] = {
        content.replace("▁", "_"): id_ for content, id_ in saved["model"]["vocab"].items()
    }
    saved["model"]["merges"] = [
        [side.replace("▁", "_") for side in merge] for merge in saved["model"]["merges"]
    ]
    assert find(json.dumps(saved).encode(), ["the a"])[0][-1] == [4, 5]
