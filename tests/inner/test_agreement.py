"""The check that a fast encoder agrees with the library: its probe, and the head of a part."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seqpack_cli.tokens.encoders.agreement import (
    MAX_HEAD_BYTES,
    MAX_VARIED_TOKENS,
    MIN_HEAD_BYTES,
    check_agreement,
    make_probe,
    open_checked_encoder,
    take_head,
)
from seqpack_cli.tokens.encoders.bytes_encoder import encode_bytes
from seqpack_cli.tokens.encoders.encoded_texts import (
    EncodedTexts,
    Encoder,
    EncoderRefusedError,
    EncodersDifferError,
)
from seqpack_cli.tokens.encoders.fastokens_encoder import DISPUTED_CHARACTER
from strategies import texts
from tokenizer_kinds import SPECIAL_TOKENS, tokenizer_of

from seqpack_cli.errors import DataError
from seqpack_cli.tokens.encoders import agreement, encoder

MAX_PROBE_BYTES = 200_000  # it is encoded by tokenizers once in every worker: 0.1 s


def fixed(ids: list[int], lengths: list[int], dtype: Any = np.uint32) -> Encoder:
    """Make an encoder that gives the same for all texts."""
    return lambda _: EncodedTexts(np.array(ids, dtype), np.array(lengths, np.int64))


# The check


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64])
@pytest.mark.parametrize(("ids", "lengths"), [([1, 2, 3], [2, 1]), ([], [0, 0]), ([], [])])
def test_equal_ids_agree_in_any_dtype(ids: list[int], lengths: list[int], dtype: Any) -> None:
    check_agreement(fixed(ids, lengths, dtype), fixed(ids, lengths), ["a", "b"], lambda: "a.txt:1")


@pytest.mark.parametrize(
    ("ids", "lengths"),
    [
        ([1, 2, 4], [2, 1]),
        ([1, 2, 3], [1, 2]),
        ([1, 2, 3], [3]),
        ([1, 2, 3], [2, 1, 0]),
        ([1, 2], [2, 0]),
        ([1, 2, 3, 4], [2, 1]),
        ([], []),
    ],
    ids=["an id", "equal flat ids", "fewer texts", "more texts", "one less", "one more", "nothing"],
)
def test_other_ids_or_lengths_differ(ids: list[int], lengths: list[int]) -> None:
    with pytest.raises(EncodersDifferError) as caught:
        check_agreement(fixed(ids, lengths), fixed([1, 2, 3], [2, 1]), [], lambda: "a.txt:1")
    assert str(caught.value) == "different ids from tokenizers for a.txt:1"


def test_text_on_which_the_library_fails_is_a_difference() -> None:
    def fail(_: list[str]) -> EncodedTexts:
        raise DataError("tokenizer.json: no luck", hint="a hint")

    with pytest.raises(EncodersDifferError) as caught:
        check_agreement(encode_bytes, fail, ["a"], lambda: "a.txt:1")
    assert str(caught.value) == "tokenizers fails on a.txt:1 (tokenizer.json: no luck)"
    assert isinstance(caught.value.__cause__, DataError)


def test_failure_of_the_fast_encoder_is_a_difference() -> None:
    def fail(_: list[str]) -> EncodedTexts:
        raise EncodersDifferError("fastokens failed: no luck")

    with pytest.raises(EncodersDifferError, match="fastokens failed: no luck"):
        check_agreement(fail, encode_bytes, ["a"], lambda: "a.txt:1")


def test_place_is_looked_for_only_when_it_is_named() -> None:
    """It reads the file from its start."""
    check_agreement(encode_bytes, encode_bytes, ["a"], lambda: pytest.fail("not needed"))


# The head


def count_bytes(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


@given(
    documents=st.lists(
        st.tuples(texts(), st.integers(1, 3000)).map(lambda pair: pair[0] * pair[1]), max_size=8
    ),
    num_bytes=st.integers(0, 1 << 27),
)
@example(documents=["x" * 10, "y" * 100_000], num_bytes=0)
@example(documents=["", "", "漢字" * 50_000, "z"], num_bytes=1 << 40)
@settings(max_examples=20)
def test_head_is_the_start_of_the_first_texts(documents: list[str], num_bytes: int) -> None:
    head = take_head(documents, num_bytes)
    begins = [text.startswith(begin) for text, begin in zip(documents, head, strict=False)]
    assert all(begins)
    assert len(begins) == len(head)
    limit = min(MAX_HEAD_BYTES, max(MIN_HEAD_BYTES, num_bytes // 1024))
    if count_bytes(documents) <= limit:
        assert head == documents[: len(head)]
        assert not any(documents[len(head) :])  # empty ones behind as many bytes as fit
    else:
        assert limit - 3 <= count_bytes(head) <= limit


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, 4 << 10),
        (1, 4 << 10),
        (4 << 20, 4 << 10),
        (8 << 20, 8 << 10),
        (64 << 20, 64 << 10),
        (1 << 40, 64 << 10),
    ],
)
@pytest.mark.parametrize("text", ["x", "é", "漢", "𝄞", "aé漢𝄞"])
def test_head_is_a_thousandth_within_bounds(num_bytes: int, expected: int, text: str) -> None:
    (head,) = take_head([text * 100_000], num_bytes)
    assert expected - 3 <= count_bytes([head]) <= expected


@pytest.mark.parametrize("text", ["twelve bytes", "ééé漢漢", "𝄞" * 5])
def test_head_of_short_texts_ends_at_its_size(text: str) -> None:
    head = take_head([text] * 10_000, 0)
    num_whole = MIN_HEAD_BYTES // len(text.encode())
    assert head[:num_whole] == [text] * num_whole
    assert all(map(text.startswith, head))
    assert MIN_HEAD_BYTES - 3 <= count_bytes(head) <= MIN_HEAD_BYTES


def test_head_of_nothing_is_nothing() -> None:
    assert take_head([], 1 << 40) == []
    assert take_head(["", ""], 1 << 40) == ["", ""]


def test_head_of_wide_characters_before_narrow_ones_is_not_larger() -> None:
    head = take_head(["𝄞" * 100_000 + "a" * 3_000_000], 1 << 40)
    assert count_bytes(head) == MAX_HEAD_BYTES


# The probe


def test_probe_spells_added_tokens_alone_and_among_letters() -> None:
    probe = make_probe(tuple(SPECIAL_TOKENS))
    for token in SPECIAL_TOKENS:
        assert {token, f"a{token}b", f" {token} ", token * 2, token[1:], token[:-1]} <= set(probe)


def test_probe_of_thousands_of_added_tokens_spells_each_and_stays_small() -> None:
    tokens = tuple(f"<|reserved_special_token_{number}|>" for number in range(5000))
    probe = make_probe(tokens)
    assert set(tokens) <= set(probe)
    last, next_one = tokens[MAX_VARIED_TOKENS - 1 : MAX_VARIED_TOKENS + 1]
    assert f"a{last}b" in probe
    assert not [text for text in probe if next_one in text and text != next_one]
    assert count_bytes(probe) < MAX_PROBE_BYTES + count_bytes(list(tokens))


def test_probe_has_every_general_category_but_surrogates() -> None:
    characters = set("".join(make_probe(())))
    assert not any("\ud800" <= character <= "\udfff" for character in characters)
    every = {unicodedata.category(chr(code)) for code in range(0x110000)} - {"Cs"}
    assert {unicodedata.category(character) for character in characters} == every
    assert len(every) == 29
    assert set(map(chr, range(0x3000))) <= characters
    assert {ord(character) >> 16 for character in characters} == set(range(17))


def test_probe_is_the_same_each_time() -> None:
    """Workers decide each for itself: they must not differ."""
    assert make_probe(("<s>",)) == make_probe(("<s>",))


# Disputed texts


@given(
    documents=st.lists(
        st.one_of(
            st.sampled_from(["", DISPUTED_CHARACTER, f"  {DISPUTED_CHARACTER} a"]),
            st.tuples(texts(), texts()).map(DISPUTED_CHARACTER.join),
            texts(),
        ),
        max_size=8,
    )
)
@example(documents=["", f"a{DISPUTED_CHARACTER}", "", "b", DISPUTED_CHARACTER, ""])
@example(documents=[])
def test_disputed_texts_are_given_to_the_reference_and_no_others(documents: list[str]) -> None:
    asked: dict[str, list[str]] = {"fast": [], "reference": []}

    def count(name: str) -> Encoder:
        def encode(texts: list[str]) -> EncodedTexts:
            asked[name] += texts
            return encode_bytes(texts)

        return encode

    encode = agreement.send_disputed(count("fast"), count("reference"))
    found, expected = encode(list(documents)), encode_bytes(documents)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    disputed = [text for text in documents if DISPUTED_CHARACTER in text]
    assert asked["reference"] == disputed
    assert list(filter(None, asked["fast"])) == [
        text for text in documents if text and text not in disputed
    ]


def test_large_ids_of_disputed_texts_are_kept() -> None:
    encode = agreement.send_disputed(fixed([1, 2], [1, 1]), fixed([200_000, 7], [2]))
    found = encode(["a", DISPUTED_CHARACTER, "b"])
    assert found.ids.tolist() == [1, 200_000, 7, 2]
    assert found.lengths.tolist() == [1, 2, 1]


# Opening


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note what is opened; the fast encoder is a copy of the library's."""
    names: list[str] = []

    def open_noting(name: str) -> Any:
        def open_reference(data: bytes, **options: Any) -> Encoder:
            names.append(name)
            return encoder.open_tokenizers_encoder(data, **options)

        return open_reference

    agreement.open_checked_encoder.cache_clear()
    agreement.start_loading.cache_clear()
    for name in ("fastokens", "tokenizers"):
        monkeypatch.setitem(encoder.OPENERS, name, open_noting(name))
    yield names
    agreement.open_checked_encoder.cache_clear()
    agreement.start_loading.cache_clear()


def open_checked(name: str, added_tokens: tuple[str, ...] = ()) -> tuple[Any, Any]:
    return open_checked_encoder(
        name,
        tokenizer_of("byte_level").encode(),
        allow_special_tokens=False,
        num_threads=1,
        added_tokens=added_tokens,
    )


def test_library_is_opened_without_a_check(opened: list[str]) -> None:
    _, reference = open_checked("tokenizers")
    assert reference is None
    assert opened == ["tokenizers"]


def test_fast_encoder_is_opened_and_probed_once_in_a_process(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes: list[tuple[str, ...]] = []

    def make_noting(added_tokens: tuple[str, ...]) -> list[str]:
        probes.append(added_tokens)
        return make_probe(added_tokens)

    monkeypatch.setattr(agreement, "make_probe", make_noting)
    first = open_checked("fastokens", ("<s>",))
    assert open_checked("fastokens", ("<s>",)) == first
    assert None not in first
    assert sorted(opened) == ["fastokens", "tokenizers"]
    assert probes == [("<s>",)]


def give_ones(texts: list[str]) -> EncodedTexts:
    lengths = np.array([bool(text) for text in texts], np.int64)
    return EncodedTexts(np.ones(lengths.sum(), np.uint32), lengths)


def give_ones_for_nothing_too(texts: list[str]) -> EncodedTexts:
    return EncodedTexts(np.ones(len(texts), np.uint32), np.ones(len(texts), np.int64))


@pytest.mark.parametrize(
    "wrong",
    [
        give_ones,
        give_ones_for_nothing_too,
        fixed([1], [1]),
        fixed([], []),
        fixed([1] * 9999, [1] * 9999),
    ],
    ids=["other ids", "ids for an empty text", "one text", "no text", "more texts"],
)
def test_fast_encoder_that_fails_the_probe_fails_it_each_time(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, wrong: Encoder
) -> None:
    monkeypatch.setitem(encoder.OPENERS, "fastokens", lambda *_, **__: wrong)
    for _ in range(2):
        with pytest.raises(EncodersDifferError) as caught:
            open_checked("fastokens")
        assert str(caught.value) in (
            "different ids from tokenizers for the built-in test texts",
            "lengths do not match its ids and texts",
        )
    assert open_checked("tokenizers")[1] is None


def test_fast_encoder_that_refuses_is_not_probed(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Encoder:
        raise EncoderRefusedError("no luck")

    monkeypatch.setitem(encoder.OPENERS, "fastokens", refuse)
    monkeypatch.setattr(agreement, "check_agreement", lambda *_: pytest.fail("nothing to check"))
    with pytest.raises(EncoderRefusedError, match="no luck"):
        open_checked("fastokens")
