"""Special tokens are ids at the places of a template, and text where a message spells them."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from seqpack_cli.tokens.placed_specials import PlacedEncoder
from seqpack_cli.tokens.target_text import TargetText

SPECIAL = ["<|im_start|>", "<|im_end|>", "</s>", "§§"]
TEXTS = ["What is the day today? It is a day like any other, and the day is long."] * 3
PIECES = st.sampled_from([*SPECIAL, "the day", " is", "\n", "é 漢🙂", "<|im_", "x", "</s", ""])


@functools.cache
def build(kind: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind == "metaspace", unk_token="<unk>"))  # noqa: S106
    alphabet: list[str] = [f"<0x{byte:02X}>" for byte in range(256)]
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.normalizer = normalizers.Replace("  ", " ")
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    special = ["<unk>", *SPECIAL, *(alphabet if kind == "metaspace" else [])]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=[] if kind == "metaspace" else alphabet,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["bytes", "metaspace"])
@given(pieces=st.lists(st.tuples(PIECES, st.booleans()), min_size=1, max_size=8))
def test_places_are_ids_and_the_rest_is_text(kind: str, pieces: list[tuple[str, bool]]) -> None:
    """A special token that is no place has the ids of its characters, as `encode` gives them."""
    text, places = "", []
    for piece, is_place in pieces:
        if is_place and piece in SPECIAL:
            places.append((len(text), len(text) + len(piece)))
        text += piece
    made = TargetText(text, tuple(places), b"", tuple(places))
    encoded, targets = open_encoder(kind).encode(made)
    expected = slow_encode(kind, text, places)
    assert encoded.ids.tolist() == expected
    assert encoded.lengths.tolist() == [len(expected)]
    special = {build(kind).token_to_id(token) for token in SPECIAL}
    assert targets.entries.tolist() == [int(id_ in special) for id_ in expected]


def test_where_no_message_spells_one_the_ids_are_those_of_the_tokenizer() -> None:
    text = "<|im_start|>the day\n<|im_end|>\n<|im_start|>is</s>"
    places = tuple(match.span() for match in re.finditer(r"<\|im_\w+\|>|</s>", text))
    for kind in ("bytes", "metaspace"):
        encoded, _ = open_encoder(kind).encode(TargetText(text, (), b"", places))
        assert encoded.ids.tolist() == build(kind).encode(text).ids


@functools.cache
def open_encoder(kind: str) -> PlacedEncoder:
    return PlacedEncoder(build(kind).to_str().encode(), ("<unk>", *SPECIAL))


def slow_encode(kind: str, text: str, places: list[tuple[int, int]]) -> list[int]:
    """Encode the pieces between the places alone; only the first begins a text."""
    tokenizer, ids, end = build(kind), list[int](), 0
    for start, stop in [*places, (len(text), len(text))]:
        inner = Tokenizer.from_str(tokenizer.to_str())
        inner.encode_special_tokens = True
        if kind == "metaspace" and end:
            inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        ids += inner.encode(text[end:start], add_special_tokens=False).ids
        ids += [tokenizer.token_to_id(text[start:stop])] * (stop > start)
        end = stop
    return ids
