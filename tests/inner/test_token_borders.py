"""Split texts where tokens end, for every kind of tokenizer and decoder."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from fuzz_tokenizers import DECODERS
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kinds import ADDED_TOKEN, KINDS, SPECIAL_TOKENS, tokenizer_of
from tokenizers import Tokenizer

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.decode import (
    MAX_CHARACTERS,
    MAX_IDS,
    Decoder,
    TextPiece,
    open_decoder,
    split_at_tokens,
)
from seqpack_cli.tokens.tokenizer import byte_tokenizer_json

TEXT = f"The quick {SPECIAL_TOKENS[4]} ґанку, 雨 {ADDED_TOKEN} don't 😀  go . \n"
BYTES = open_decoder(byte_tokenizer_json())


def without_decoder() -> str:
    saved = json.loads(tokenizer_of("byte_level"))
    saved["decoder"] = None
    return json.dumps(saved)


FILES = dict.fromkeys(KINDS, tokenizer_of) | {"none": lambda _: without_decoder()}


def open_kind(kind: str) -> tuple[Tokenizer, Decoder]:
    text = FILES[kind](kind)
    return Tokenizer.from_str(text), open_decoder(text.encode())


def check_pieces(decode: Decoder, ids: Sequence[int]) -> list[TextPiece]:
    pieces = split_at_tokens(decode, ids)
    assert "".join(piece.text for piece in pieces) == decode([np.array(ids, np.int64)])[0]
    assert [id_ for piece in pieces for id_ in piece.ids] == list(ids)
    assert all(piece.ids for piece in pieces)
    assert all(piece.text for piece in pieces) or len(pieces) == 1
    return pieces


def ids_of(text: str) -> list[int]:
    return list(text.encode())


def test_characters_of_several_bytes_are_one_piece() -> None:
    assert split_at_tokens(BYTES, ids_of("aґ雨😀")) == [
        TextPiece("a", (97,)),
        TextPiece("ґ", (0xD2, 0x91)),
        TextPiece("雨", (0xE9, 0x9B, 0xA8)),
        TextPiece("😀", (0xF0, 0x9F, 0x98, 0x80)),
    ]


def test_special_tokens_are_pieces_as_they_are_spelled() -> None:
    pieces = split_at_tokens(BYTES, [257, 97, 258])
    assert [piece.text for piece in pieces] == ["<bos>", "a", "<eos>"]


def test_incomplete_bytes_stay_with_their_replacement_character() -> None:
    assert split_at_tokens(BYTES, [0xE9, 0x9B, 97]) == [
        TextPiece("\ufffd", (0xE9, 0x9B)),
        TextPiece("a", (97,)),
    ]
    assert split_at_tokens(BYTES, [0xA8, 97]) == [
        TextPiece("\ufffd", (0xA8,)),
        TextPiece("a", (97,)),
    ]


def test_no_ids_give_no_pieces() -> None:
    assert split_at_tokens(BYTES, []) == []


def test_token_without_text_belongs_to_the_piece_before_or_to_the_first() -> None:
    texts = {(): "", (1,): "", (1, 2): "a", (1, 2, 1): "a", (1, 2, 1, 2): "aa", (1, 1): ""}

    def decode(sequences: Sequence[np.ndarray]) -> list[str]:
        return [texts[tuple(ids.tolist())] for ids in sequences]

    pieces = split_at_tokens(decode, [1, 2, 1, 2])
    assert pieces == [TextPiece("a", (1, 2, 1)), TextPiece("a", (2,))]
    assert split_at_tokens(decode, [1, 1]) == [TextPiece("", (1, 1))]


def test_words_of_a_byte_level_tokenizer_keep_their_space() -> None:
    tokenizer, decode = open_kind("byte_level")
    encoded = tokenizer.encode("The quick brown")
    pieces = check_pieces(decode, encoded.ids)
    assert [piece.text for piece in pieces] == [token.replace("Ġ", " ") for token in encoded.tokens]


def test_bytes_of_a_fallback_are_one_piece() -> None:
    tokenizer, decode = open_kind("byte_fallback")
    ids = tokenizer.encode("a雨😀", add_special_tokens=False).ids
    *_, rain, smile = check_pieces(decode, ids)
    assert (rain.text, len(rain.ids), smile.text, len(smile.ids)) == ("雨", 3, "😀", 4)


@pytest.mark.parametrize("kind", FILES)
def test_pieces_of_a_text_are_the_text(kind: str) -> None:
    tokenizer, decode = open_kind(kind)
    pieces = check_pieces(decode, tokenizer.encode(TEXT).ids)
    assert len(pieces) > 8
    found = [piece.text.strip() for piece in pieces]
    assert ADDED_TOKEN in found


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data())
def test_pieces_of_random_ids_are_the_ids_and_their_text(kind: str, data: st.DataObject) -> None:
    tokenizer, decode = open_kind(kind)
    ids = st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=40)
    check_pieces(decode, data.draw(ids))


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder and decoder["type"])
@given(data=st.data())
def test_pieces_of_any_decoder_are_the_ids_and_their_text(
    decoder: object, data: st.DataObject
) -> None:
    vocabulary = {letter: number for number, letter in enumerate("abcd.' ")}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}
    values = {"version": "1.0", "model": model, "decoder": decoder, "added_tokens": []}
    decode = open_decoder(json.dumps(values).encode())
    ids = data.draw(st.lists(st.integers(0, 6), max_size=30))
    try:
        decode([np.array(ids, np.int64)])
    except DataError:
        return  # a text that is too short to be stripped
    check_pieces(decode, ids)


def test_text_of_a_decoder_that_fails_on_prefixes_is_one_piece() -> None:
    strip = {"type": "Strip", "content": "b", "start": 0, "stop": 1}
    decoder = {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]}
    model = {"type": "WordLevel", "vocab": {"": 0, "ab": 1}, "unk_token": "ab"}
    values = {"version": "1.0", "model": model, "decoder": decoder, "added_tokens": []}
    decode = open_decoder(json.dumps(values).encode())
    with pytest.raises(DataError):
        decode([np.array([0])])
    assert split_at_tokens(decode, [0, 1]) == [TextPiece("a", (0, 1))]
    assert [piece.text for piece in split_at_tokens(decode, [1, 1])] == ["a", "ba"]


@given(st.text(min_size=100, max_size=150))
def test_pieces_of_many_ids_are_a_prefix_without_a_broken_character(text: str) -> None:
    ids = ids_of(text + "雨" * 100)
    pieces = split_at_tokens(BYTES, ids)
    joined = "".join(piece.text for piece in pieces)
    assert (text + "雨" * 100).startswith(joined)
    shown = [id_ for piece in pieces for id_ in piece.ids]
    assert shown == ids[: len(shown)]
    assert MAX_IDS - 3 <= len(shown) <= MAX_IDS
    assert "\ufffd" not in joined.replace("\ufffd", "", text.count("\ufffd"))


def test_very_long_text_is_one_piece() -> None:
    vocabulary = {"x" * MAX_CHARACTERS: 0}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "x"}
    values = {"version": "1.0", "model": model, "decoder": {"type": "Fuse"}, "added_tokens": []}
    decode = open_decoder(json.dumps(values).encode())
    assert split_at_tokens(decode, [0]) == [TextPiece("x" * MAX_CHARACTERS, (0,))]
    assert split_at_tokens(decode, [0, 0]) == [TextPiece("x" * 2 * MAX_CHARACTERS, (0, 0))]
    assert len(split_at_tokens(BYTES, [97, 98])) == 2
