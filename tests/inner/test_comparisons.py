"""Values of a column compared with a value that a user wrote, against Python's own comparison."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.conditions import OPERATORS
from seqpack_cli.tokens.text_values import TextValues

SIGNS = st.sampled_from([*OPERATORS])
LEAST, MOST = -(2**63), 2**63 - 1
NEAR = [LEAST, LEAST + 1, -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, MOST - 1, MOST]
INTEGERS = st.lists(st.sampled_from(NEAR) | st.integers(LEAST, MOST), max_size=6)
NUMBERS = st.sampled_from([*map(str, NEAR), "3.5", "-0.5", "1e3", "+.5", "7.", str(MOST) + ".5"])
TEXTS = st.text("aé\U00010000\0", max_size=4)


@given(INTEGERS, SIGNS, NUMBERS | st.integers(LEAST - 9, MOST + 9).map(str))
@example([LEAST], "=", str(LEAST))
@example([2**53 + 1], "=", str(2**53))
def test_integers_are_compared_exactly(values: list[int], sign: str, value: str) -> None:
    found = Column("x", "int").make_test(sign, value)(np.array(values, np.int64))
    assert found.dtype == bool
    assert found.tolist() == [OPERATORS[sign](each, Fraction(Decimal(value))) for each in values]


@given(st.lists(st.floats(allow_nan=False), max_size=6), SIGNS, st.floats(allow_infinity=False))
@example([0.1, 0.3], "=", 0.1)
def test_floats_are_compared_with_the_float_of_the_same_text(
    values: list[float], sign: str, value: float
) -> None:
    if np.isnan(value):
        return
    found = Column("x", "float").make_test(sign, repr(value))(np.array([*values, value]))
    assert found.tolist() == [OPERATORS[sign](each, value) for each in [*values, value]]


@given(st.lists(TEXTS, max_size=8), st.sampled_from(["=", "!="]), TEXTS)
def test_texts_are_compared_whole(texts: list[str], sign: str, value: str) -> None:
    found = Column("x", "text").make_test(sign, value)(TextValues.of(texts))
    assert found.tolist() == [OPERATORS[sign](text, value) for text in texts]


@pytest.mark.parametrize(
    ("names", "value", "expected"),
    [
        (("de", "en", ""), "en", 1),
        (("de", "en", ""), "", 2),
        (("1", "1.0"), "1.0", 1),
        ((-3, 2**53, 2**53 + 1), "9007199254740993", 2),
        ((-3, 0, 0.1), "1e-1", 2),
        ((1, 2.5), "1.0", 0),
        ((False, True), "TRUE", 1),
    ],
)
def test_a_class_is_named_by_its_text_number_or_truth(
    names: tuple[Any, ...], value: str, expected: int
) -> None:
    ids, column = np.arange(len(names), dtype=np.int32), Column("x", "class", names)
    assert np.flatnonzero(column.make_test("=", value)(ids)).tolist() == [expected]
    assert np.flatnonzero(~column.make_test("!=", value)(ids)).tolist() == [expected]


NO_NUMBER = "column 'x' holds numbers, found {!r}, expected a number"
LANGUAGES = (*"abcdefg", "english")


@pytest.mark.parametrize(
    ("column", "sign", "value", "message"),
    [
        *(
            (Column("x", kind), "<", value, NO_NUMBER.format(value))
            for kind in ("int", "float")
            for value in ("nan", "-inf", "", "1_000", "0x1", "1/2", "٣")
        ),
        (Column("x", "int"), "=", "1" * 401, "column 'x' holds numbers, found '1111"),
        (
            Column("x", "class", LANGUAGES),
            "!=",
            "englsh",
            "column 'x' has no class 'englsh' (found: 'english', 'a', 'b', 'c', 'd' and 3 more)",
        ),
        (
            Column("x", "class", (False, True)),
            "=",
            "1",
            "column 'x' has no class '1' (found: 'false', 'true')",
        ),
        (
            Column("x", "class", ("a",)),
            "<",
            "a",
            "column 'x' is of kind class: found <, expected = or !=",
        ),
        (
            Column("x", "text"),
            ">=",
            "a",
            "column 'x' is of kind text: found >=, expected = or !=",
        ),
        (
            Column("x", "tags", ("B", "I")),
            "=",
            "B",
            "column 'x' has a value per token, expected one per sequence",
        ),
    ],
)
def test_what_a_column_cannot_be_compared_with_is_refused(
    column: Column, sign: str, value: str, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^column") as caught:
        column.make_test(sign, value)
    assert str(caught.value).startswith(message)
