"""Compare the values of a column with a value that a user wrote in a condition.

Nothing is rounded and nothing decoded: integers are compared as integers, however large; floats
with the nearest float, as their own texts were read; classes by id; texts by their bytes, those of
the right length alone. 1 to 3 ns per value; a text costs more only where the length is the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fractions import Fraction
from math import floor
from typing import Any, Protocol

import numpy as np

from seqpack_cli.errors import join_items, quote

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITY = ("=", "!=")
# A number of JSON, or one that begins with its point or a plus; of few enough digits to be exact.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
MAX_NUMBER_CHARACTERS = 400
INT64 = np.iinfo(np.int64)

Test = Callable[[Any], np.ndarray]  # values of a part -> bool, one per sequence


class ComparedColumn(Protocol):
    """What a comparison needs to know about a column."""

    @property
    def name(self) -> str:
        """Return the name of the field."""

    @property
    def kind(self) -> str:
        """Return int, float, class, text or tags."""

    @property
    def class_names(self) -> Sequence[Any] | None:
        """Return the names of a class column, in the order of their ids."""


def make_test(column: ComparedColumn, sign: str, value: str) -> Test:
    """Return the function that compares a column's values with a value.

    Args:
        sign: a key of OPERATORS.
        value: as the user wrote it.

    Raises:
        ValueError: the column's kind has no such comparison, or no such value.
    """
    if column.kind not in MAKERS:
        raise ValueError(
            f"column {quote(column.name)} holds a value for each token, "
            "a condition needs one for each sequence"
        )
    return MAKERS[column.kind](column, sign, value)


def make_integer_test(name: str, sign: str, value: str) -> Test:
    """Return the function that compares integers, `name` in errors, with a number."""
    _check_number(name, value)
    number = Fraction(value)
    return lambda values: compare_integers(values, sign, number)


def compare_integers(values: np.ndarray, sign: str, number: Fraction) -> np.ndarray:
    """Compare integers of at most 64 bits with any number, exactly.

    >>> compare_integers(np.array([2, 3]), "<", Fraction(5, 2)).tolist()
    [True, False]
    """
    is_whole = number.denominator == 1
    if not INT64.min <= number <= INT64.max or (sign in EQUALITY and not is_whole):
        return np.full(len(values), OPERATORS[sign](0, number))  # the same for each integer
    if not is_whole:  # x < 2.5 where x <= 2, x >= 2.5 where x > 2
        sign = {"<": "<=", ">=": ">"}.get(sign, sign)
    result: np.ndarray = OPERATORS[sign](values, np.int64(floor(number)))
    return result


def _test_integers(column: ComparedColumn, sign: str, value: str) -> Test:
    return make_integer_test(f"column {quote(column.name)}", sign, value)


def _test_floats(column: ComparedColumn, sign: str, value: str) -> Test:
    _check_number(f"column {quote(column.name)}", value)
    number = float(value)
    return lambda values: OPERATORS[sign](values, number)


def _test_classes(column: ComparedColumn, sign: str, value: str) -> Test:
    _check_equality(column, sign)
    names = column.class_names or ()
    for number, name in enumerate(names):
        if _is_same(name, value):
            return lambda ids: OPERATORS[sign](ids, number)
    spelled = [name if isinstance(name, str) else _spell(name) for name in names]
    close = get_close_matches(value, spelled, n=3)
    listed = join_items(map(quote, dict.fromkeys([*close, *spelled])))
    raise ValueError(f"column {quote(column.name)} has no class {quote(value)} (found: {listed})")


def _test_texts(column: ComparedColumn, sign: str, value: str) -> Test:
    _check_equality(column, sign)
    expected = value.encode("utf-8", "surrogatepass")
    return lambda texts: OPERATORS[sign](find_text(texts.data, texts.offsets, expected), True)


MAKERS: dict[str, Callable[[ComparedColumn, str, str], Test]] = {
    "int": _test_integers,
    "float": _test_floats,
    "class": _test_classes,
    "text": _test_texts,
}


def find_text(data: np.ndarray, offsets: np.ndarray, expected: bytes) -> np.ndarray:
    """Return which texts are equal to one, bool[N]; only those of its length are looked at.

    Args:
        data: uint8, all texts back to back.
        offsets: int64[N + 1], where each begins.
    """
    left = np.flatnonzero(np.diff(offsets) == len(expected))
    starts = offsets[left]
    for place, byte in enumerate(expected):
        if not len(left):
            break
        same = data[starts + place] == byte
        left, starts = left[same], starts[same]
    is_equal = np.zeros(len(offsets) - 1, bool)
    is_equal[left] = True
    return is_equal


def _is_same(name: Any, value: str) -> bool:
    """Return whether a class name is meant by a value: a text, a number, or true or false."""
    if isinstance(name, str):
        return name == value
    if isinstance(name, bool):
        return value.lower() == _spell(name)
    if not _is_number(value):
        return False
    return bool(name == (float(value) if isinstance(name, float) else Fraction(value)))


def _spell(name: Any) -> str:
    return str(name).lower() if isinstance(name, bool) else str(name)


def _check_equality(column: ComparedColumn, sign: str) -> None:
    if sign not in EQUALITY:
        raise ValueError(
            f"column {quote(column.name)} is of type {column.kind}, which allows only = and !=, "
            f"found {sign}"
        )


def _check_number(name: str, value: str) -> None:
    if not _is_number(value):
        raise ValueError(f"{name} holds numbers, found {quote(value)}, expected a number")


def _is_number(value: str) -> bool:
    return len(value) <= MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(value) is not None
