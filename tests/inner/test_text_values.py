"""Many texts in two arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.tokens.text_values import TextValues, check_offsets, join_values

TEXTS = st.lists(st.text(max_size=5), max_size=6)


@given(TEXTS, TEXTS, st.data())
def test_texts_come_back(first: list[str], second: list[str], data: st.DataObject) -> None:
    texts = first + second
    values = join_values([TextValues.of(first), TextValues.of(second)[:]])
    assert isinstance(values, TextValues)
    assert values.tolist() == texts == [values[index] for index in range(len(values))]
    assert not values.find_wrong().any()
    places = data.draw(
        st.lists(st.integers(-1, len(texts) - 1), max_size=8) if texts else st.just([])
    )
    expected = ["" if place < 0 else texts[place] for place in places]
    assert values.take(np.array(places, np.int64)).tolist() == expected
    start, stop = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8))
    assert values[start:stop].tolist() == texts[start:stop]
    assert values[::-1].tolist() == texts[::-1]


@pytest.mark.parametrize(
    ("data", "offsets", "wrong"),
    [
        (b"a\xffb", [0, 1, 2, 3], [False, True, False]),
        ("aéb".encode(), [0, 2, 2, 4], [True, False, True]),
        ("aéb".encode(), [0, 3, 3, 4], [False, False, False]),
    ],
)
def test_find_wrong_finds_texts_that_are_not_utf8(
    data: bytes, offsets: list[int], wrong: list[bool]
) -> None:
    values = TextValues(np.frombuffer(data, np.uint8), np.array(offsets))
    assert values.find_wrong().tolist() == wrong


@pytest.mark.parametrize("offsets", [[0, 1], [1, 2, 3], [0, 2, 4], [0, 3, 2], [0, 5, 3]])
def test_check_offsets_refuses(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^column\.a\.offsets "):
        check_offsets(np.array(offsets), num_texts=2, num_bytes=3, name="column.a.offsets")
    check_offsets(np.array([0, 0, 3]), num_texts=2, num_bytes=3, name="column.a.offsets")


def test_repr_shows_the_first_texts_in_short() -> None:
    assert repr(TextValues.of(["é\n", "b" * 99])) == (
        f"TextValues(['é\\n', '{'b' * 58}…], num_texts=2)"
    )
    assert repr(TextValues.of([*"abcd"])) == "TextValues(['a', 'b', 'c', …], num_texts=4)"
    broken = TextValues(np.frombuffer(b"\xff", np.uint8), np.array([0, 1]))
    assert repr(broken) == "TextValues(['\ufffd'], num_texts=1)"
