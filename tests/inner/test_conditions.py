"""Conditions of `pack --where`: what is parsed, and what is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.conditions import (
    BUILT_IN,
    EXAMPLE,
    ONE_EACH,
    OPERATORS,
    Condition,
    parse_condition,
)
from seqpack_cli.errors import OptionError

MARKS = "=!<>'\"@ ab\n"
TEXTS = st.text(st.sampled_from(MARKS)) | st.text()
CONDITIONS = st.builds(Condition, TEXTS, st.sampled_from(OPERATORS), TEXTS) | st.builds(
    Condition, st.sampled_from(BUILT_IN), st.sampled_from(OPERATORS), TEXTS, st.just(True)
)


@given(CONDITIONS)
def test_a_spelled_condition_is_parsed_to_itself(condition: Condition) -> None:
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lang=de", ("lang", "=", "de")),
        ("  meta.lang  !=  a b  ", ("meta.lang", "!=", "a b")),
        ("my field <= -1.5", ("my field", "<=", "-1.5")),
        ("it's >= it's", ("it's", ">=", "it's")),
        ("'it''s' < \"it's\"", ("it's", "<", "it's")),
        ("'@source' = x", ("@source", "=", "x")),
        ("path = run=3/*", ("path", "=", "run=3/*")),
        ('lang = ""', ("lang", "=", "")),
        ("'' > ' x '", ("", ">", " x ")),
        ("@length >= 8", ("@length", ">=", "8", True)),
    ],
)
def test_names_and_values_are_bare_or_quoted(text: str, expected: tuple[str, ...]) -> None:
    assert parse_condition(text) == Condition(*expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "ends after character 0, expected a column, @source or @length"),
        ("= 3", "found '= 3' at character 1, expected a column, @source or @length"),
        ("lang", "ends after character 4, expected one of = != < <= > >="),
        ("lang == de", "found '==' at character 6, expected one of = != < <= > >="),
        ("lang <> de", "found '<>' at character 6, expected one of = != < <= > >="),
        ("'a' b = 1", "found 'b = 1' at character 5, expected one of = != < <= > >="),
        ("lang = ", "ends after character 7, expected a value, or '' for the empty text"),
        ("lang = 'de", "found \"'de\" at character 8, expected a second ' that ends it"),
        ('"a = 1', "found '\"a = 1' at character 1, expected a second \" that ends it"),
        ("a = 'b' c", "found 'c' at character 9, expected the end after the closing quote"),
        ("@length 8", "found '8' at character 9, expected one of = != < <= > >="),
        (" @size > 1", "found '@size' at character 2, expected @source or @length"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_condition(text)
    assert caught.value.message == f"--where {text!r}: {what}"
    assert caught.value.hint == EXAMPLE


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("lang in de,en", "found 'in de,en' at character 6, expected one of = != < <= > >="),
        ("my a is 1 or 2", "found 'is 1 or 2' at character 6, expected one of = != < <= > >="),
        (
            "a = 'b' or 'c'",
            "found \"or 'c'\" at character 9, expected the end after the closing quote",
        ),
    ],
)
def test_several_conditions_in_one_are_refused_with_the_way_to_pass_them(
    text: str, what: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parse_condition(text)
    assert caught.value.message == f"--where {text!r}: {what}"
    assert caught.value.hint == ONE_EACH
