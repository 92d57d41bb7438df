"""Turn encoded documents into sequences and count them in the ledger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sequences
from strategies import documents

from seqpack_cli.tokens.sequences import EncodedTexts, TokenColumn, TooLongError, make_sequences
from seqpack_cli.tokens.tokenizer import Affixes


def encode(texts: list[list[int]], dtype: str = "int64") -> EncodedTexts:
    ids = np.array([id_ for text in texts for id_ in text], dtype)
    return EncodedTexts(ids, np.array([len(text) for text in texts], np.int64))


def split(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [piece.tolist() for piece in np.split(ids, np.cumsum(lengths)[:-1])] if len(ids) else []


@st.composite
def cuts(draw: st.DrawFn, num_affixes: int) -> dict[str, Any]:
    """How documents are cut, as the options of a run allow it."""
    overflow = draw(st.sampled_from(["split", "split", "truncate", "drop"]))
    max_length = draw(st.none() | st.integers(1, 12))
    if max_length is None:
        return {"max_length": None, "overflow": overflow}
    if overflow == "truncate":
        max_length += num_affixes  # the run refuses less
    overlap = draw(st.integers(0, max_length - 1)) if overflow == "split" else 0
    return {"max_length": max_length, "overflow": overflow, "overlap": overlap}


@given(
    texts=documents(),
    prefix=st.lists(st.integers(1, 4), max_size=2),
    suffix=st.lists(st.integers(5, 9), max_size=2),
    dtype=st.sampled_from(["int64", "uint8"]),
    data=st.data(),
)
def test_sequences_and_ledger_equal_slow_splitter(
    texts: list[list[int]], prefix: list[int], suffix: list[int], dtype: str, data: st.DataObject
) -> None:
    cut = data.draw(cuts(len(prefix) + len(suffix)))
    slow = slow_sequences(texts, prefix=prefix, suffix=suffix, **cut)
    affixes = Affixes(tuple(prefix), tuple(suffix))
    made = make_sequences(encode(texts, dtype), affixes=affixes, **cut)
    assert split(made.ids, made.lengths) == slow.sequences
    assert made.num_sequences.tolist() == [len(pieces) for pieces in slow.sequences_of_document]
    assert made.overlaps.tolist() == slow.overlaps
    for name in (
        "num_special_tokens",
        "num_truncated_tokens",
        "num_dropped_tokens",
        "num_dropped_documents",
    ):
        assert getattr(made, name) == getattr(slow, name)
    came_in = sum(map(len, texts)) + made.num_special_tokens + sum(slow.overlaps)
    assert came_in == len(made.ids) + made.num_truncated_tokens + made.num_dropped_tokens


@given(
    texts=documents(),
    num_prefix=st.integers(0, 2),
    num_suffix=st.integers(0, 2),
    of_overlap=st.none() | st.just(-3),
    data=st.data(),
)
def test_columns_are_cut_as_a_text_of_their_values_would_be(
    texts: list[list[int]],
    num_prefix: int,
    num_suffix: int,
    of_overlap: int | None,
    data: st.DataObject,
) -> None:
    """Values that are the places of their tokens; -1 in front, -2 behind what is not truncated."""
    cut = data.draw(cuts(num_prefix + num_suffix))
    encoded, lengths = encode(texts), list(map(len, texts))
    values = np.arange(len(encoded.ids), dtype=np.int16)
    affixes = Affixes((1,) * num_prefix, (2,) * num_suffix)
    columns = {"place": TokenColumn(values, -1, -2, of_overlap)}
    made = make_sequences(encoded, affixes=affixes, columns=columns, **cut).columns["place"]
    expected: list[int] = []
    for document in np.split(values, np.cumsum(lengths)[:-1]):
        around = {"prefix": [-1] * num_prefix, "suffix": [-2] * num_suffix}
        slow = slow_sequences([document.tolist()], **around, **cut)
        if slow.num_truncated_tokens:
            slow = slow_sequences(
                [document.tolist()], **{**around, "suffix": [-1] * num_suffix}, **cut
            )
        for piece, overlap in zip(slow.sequences, slow.overlaps, strict=True):
            expected += piece if of_overlap is None else [of_overlap] * overlap + piece[overlap:]
    assert made.dtype == np.int16
    assert made.tolist() == expected


@given(texts=documents(), max_length=st.integers(1, 12), data=st.data())
def test_split_loses_and_repeats_nothing_but_the_overlap(
    texts: list[list[int]], max_length: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, max_length - 1))
    made = make_sequences(encode(texts), affixes=Affixes(), max_length=max_length, overlap=overlap)
    pieces = zip(split(made.ids, made.lengths), made.overlaps.tolist(), strict=True)
    once = [id_ for piece, repeated in pieces for id_ in piece[repeated:]]
    assert once == encode(texts).ids.tolist()
    assert (made.lengths > made.overlaps).all()
    assert made.lengths.max(initial=1) <= max_length


def test_truncate_keeps_the_special_tokens() -> None:
    made = make_sequences(
        encode([[5, 6, 7, 8]]), affixes=Affixes((1,), (2,)), max_length=4, overflow="truncate"
    )
    assert made.ids.tolist() == [1, 5, 6, 2]


@pytest.mark.parametrize("overflow", ["split", "truncate", "drop", "error"])
def test_document_of_exactly_max_length_stays_whole(overflow: str) -> None:
    made = make_sequences(
        encode([[5, 6]]), affixes=Affixes((1,), (2,)), max_length=4, overflow=overflow
    )
    assert made.ids.tolist() == [1, 5, 6, 2]
    assert made.lengths.tolist() == [4]


def test_too_long_document_is_named_where_it_is_an_error() -> None:
    with pytest.raises(TooLongError) as caught:
        make_sequences(
            encode([[5], [], [5, 6, 7], [5] * 9]),
            affixes=Affixes((1,), (2,)),
            max_length=4,
            overflow="error",
        )
    assert (caught.value.document, caught.value.length) == (2, 5)


def test_document_without_tokens_gets_no_special_tokens() -> None:
    encoded = make_sequences(encode([[], [5], []]), affixes=Affixes((1, 2), (3,)))
    assert encoded.ids.tolist() == [1, 2, 5, 3]
    assert encoded.num_sequences.tolist() == [0, 1, 0]


def test_special_tokens_above_a_byte_stand_beside_bytes() -> None:
    encoded = make_sequences(encode([[255]], "uint8"), affixes=Affixes((257,), (70_000,)))
    assert encoded.ids.tolist() == [257, 255, 70_000]
