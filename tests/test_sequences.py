"""Turn encoded documents into sequences and count them in the ledger."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sequences
from strategies import documents

from seqpack_cli.tokens.affixes import Affixes
from seqpack_cli.tokens.encoders.encoded_texts import EncodedTexts
from seqpack_cli.tokens.sequences import TokenColumn, TooLongError, add_affixes, make_sequences


def encode(texts: list[list[int]], dtype: str = "int64") -> EncodedTexts:
    ids = np.array([id_ for text in texts for id_ in text], dtype)
    return EncodedTexts(ids, np.array([len(text) for text in texts], np.int64))


def split(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [piece.tolist() for piece in np.split(ids, np.cumsum(lengths)[:-1])] if len(ids) else []


@given(
    texts=documents(),
    prefix=st.lists(st.integers(1, 4), max_size=2),
    suffix=st.lists(st.integers(5, 9), max_size=2),
    max_length=st.none() | st.integers(1, 12),
    overflow=st.sampled_from(["split", "truncate", "drop"]),
    dtype=st.sampled_from(["int64", "uint8"]),
)
def test_sequences_and_ledger_equal_slow_splitter(
    texts: list[list[int]],
    prefix: list[int],
    suffix: list[int],
    max_length: int | None,
    overflow: str,
    dtype: str,
) -> None:
    if overflow == "truncate" and max_length is not None:
        max_length += len(prefix) + len(suffix)  # the run refuses less
    slow = slow_sequences(
        texts, prefix=prefix, suffix=suffix, max_length=max_length, overflow=overflow
    )
    made = make_sequences(
        encode(texts, dtype),
        affixes=Affixes(tuple(prefix), tuple(suffix)),
        max_length=max_length,
        overflow=overflow,
    )
    assert split(made.ids, made.lengths) == slow.sequences
    assert made.num_sequences.tolist() == [len(pieces) for pieces in slow.sequences_of_document]
    for name in (
        "num_special_tokens",
        "num_truncated_tokens",
        "num_dropped_tokens",
        "num_dropped_documents",
    ):
        assert getattr(made, name) == getattr(slow, name)
    came_in = sum(map(len, texts)) + made.num_special_tokens
    assert came_in == len(made.ids) + made.num_truncated_tokens + made.num_dropped_tokens


@given(
    texts=documents(),
    prefix=st.lists(st.integers(1, 4), max_size=2),
    suffix=st.lists(st.integers(5, 9), max_size=2),
    max_length=st.none() | st.integers(5, 12),
    overflow=st.sampled_from(["split", "truncate", "drop"]),
)
def test_columns_stay_beside_their_tokens(
    texts: list[list[int]],
    prefix: list[int],
    suffix: list[int],
    max_length: int | None,
    overflow: str,
) -> None:
    """A column that repeats the text's ids, all above 9, is the ids without special tokens."""
    encoded = encode(texts)
    columns = {
        "same": TokenColumn(encoded.ids, -100),
        "place": TokenColumn(np.arange(len(encoded.ids), dtype=np.int8), 0),
    }
    made = make_sequences(
        encoded,
        affixes=Affixes(tuple(prefix), tuple(suffix)),
        max_length=max_length,
        overflow=overflow,
        columns=columns,
    )
    is_text = made.ids > 9
    assert made.columns["same"].tolist() == np.where(is_text, made.ids, -100).tolist()
    assert made.columns["place"].dtype == np.int8
    places = made.columns["place"][is_text]
    assert encoded.ids[places].tolist() == made.ids[is_text].tolist()
    assert (np.diff(places) > 0).all()


@given(texts=documents(), max_length=st.integers(1, 12))
def test_split_loses_nothing(texts: list[list[int]], max_length: int) -> None:
    made = make_sequences(encode(texts), affixes=Affixes(), max_length=max_length)
    assert made.ids.tolist() == encode(texts).ids.tolist()
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
    encoded = add_affixes(encode([[], [5], []]), Affixes((1, 2), (3,)))
    assert encoded.ids.tolist() == [1, 2, 5, 3]
    assert encoded.lengths.tolist() == [0, 4, 0]


def test_special_tokens_above_a_byte_stand_beside_bytes() -> None:
    encoded = add_affixes(encode([[255]], "uint8"), Affixes((257,), (70_000,)))
    assert encoded.ids.tolist() == [257, 255, 70_000]
