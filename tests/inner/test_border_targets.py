"""Targets found from the bytes before each border are those found from all characters."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from seqpack_cli.tokens.encoders.encoder import open_encoder
from seqpack_cli.tokens.offsets.border_targets import BorderTargets
from seqpack_cli.tokens.offsets.character_targets import find_character_targets
from seqpack_cli.tokens.offsets.offsets import open_offset_finder
from seqpack_cli.tokens.target_text import TargetText

PIECES = [
    "the day",
    " is",
    "\n",
    "\n\n",
    "é",
    "e\u0301",
    "漢字",
    "🙂",
    "👩\u200d👧",
    "<s>",
    "  ",
    "x",
    "1",
]
EXACT = {
    "plain": lambda _: None,
    "nfc": lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.NFC()),
}
OTHERS = {
    "prefix space": lambda tokenizer: setattr(
        tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel()
    ),
    "lowercase": lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.Lowercase()),
    "stripping": lambda tokenizer: tokenizer.add_tokens([AddedToken("the", rstrip=True)]),
}


@functools.cache
def make(kind: str) -> bytes:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the day is the day\n\n  the 漢字 é é day 🙂🙂"] * 3, trainer)
    {**EXACT, **OTHERS}[kind](tokenizer)
    return tokenizer.to_str().encode()


@st.composite
def texts(draw: st.DrawFn) -> TargetText:
    text = "".join(draw(st.lists(st.sampled_from(PIECES), max_size=8)))
    borders = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = [span for span in list(pairwise(borders))[::2] if span[0] < span[1]]
    return TargetText(text, tuple(spans), b"")


@pytest.mark.parametrize("kind", EXACT)
@given(batch=st.lists(texts(), min_size=1, max_size=5))
def test_bytes_before_the_borders_give_the_same_targets(kind: str, batch: list[TargetText]) -> None:
    data, contents = make(kind), [text.text for text in batch]
    encoded = open_encoder("tokenizers", data, allow_special_tokens=True)(contents)
    found, is_known = BorderTargets(data).find([*batch[:-1], batch[-1]], encoded)
    finder = open_offset_finder(data, allow_special_tokens=True, with_spaces=True)
    for number, text in enumerate(batch):
        assert is_known[number] == (kind == "plain" or "\u0301" not in text.text)
    if is_known.all():
        expected = find_character_targets(batch, finder(contents, encoded), encoded.lengths)
        assert found.entries.tolist() == expected.entries.tolist()
        assert found.num_straddling == expected.num_straddling


@pytest.mark.parametrize("kind", OTHERS)
def test_other_tokenizers_are_left_to_the_characters(kind: str) -> None:
    data, text = make(kind), TargetText("the day", ((4, 7),), b"")
    encoded = open_encoder("tokenizers", data, allow_special_tokens=True)([text.text])
    _, is_known = BorderTargets(data).find([text], encoded)
    assert not is_known.any()


def test_tokens_of_another_length_than_the_text_are_not_known() -> None:
    data, text = make("plain"), TargetText("the day", ((4, 7),), b"")
    encoded = open_encoder("tokenizers", data, allow_special_tokens=True)(["the days"])
    found, is_known = BorderTargets(data).find([text], encoded)
    assert not is_known.any()
    assert not np.any(found.entries)
