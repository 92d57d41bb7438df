"""Compare the values of a column with a value that a user wrote in a condition.

Nothing is decoded: integers are compared as integers, however large; floats with the nearest float,
as their own texts were read; classes by id; texts by their bytes, those of the right length alone.
1 to 3 ns per value; a text of the same length takes about 20 ns.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from math import floor
from typing import Any

import numpy as np

from seqpack_cli.errors import join_items, quote
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.text_values import TextValues

Label = str | int | float | bool  # the name of a class
Test = Callable[[Any], np.ndarray]  # values of a column -> which of them meet a condition, bool

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITY = ("=", "!=")
# A number of JSON, or one that begins with its point or a plus.
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_NUMBER_CHARACTERS = 400
MAX_CLOSE = 10_000  # class names among which similar ones are looked for, at 10 us each
INT64 = np.iinfo(np.int64)


def make_integer_test(sign: str, value: str, _: Sequence[Label] = ()) -> Test:
    """Return the function that compares integers of 64 bits with a number.

    Raises:
        ValueError: the value is not a number; the message begins with a verb.

    >>> make_integer_test("<", "2.5")(np.array([2, 3])).tolist()
    [True, False]
    """
    number = _parse_number(value)
    is_whole = type(number) is int or float(number).is_integer()
    if not INT64.min <= number <= INT64.max or (sign in EQUALITY and not is_whole):
        is_met = OPERATORS[sign](0, number)  # the same for each integer
        return lambda values: np.full(len(values), is_met)
    if not is_whole:  # x < 2.5 where x <= 2, x >= 2.5 where x > 2
        sign = {"<": "<=", ">=": ">"}.get(sign, sign)
    return lambda values: OPERATORS[sign](values, np.int64(floor(number)))


def make_float_test(sign: str, value: str, _: Sequence[Label]) -> Test:
    """Return the function that compares floats with a number.

    Raises:
        ValueError: the value is not a number.
    """
    number = float(_parse_number(value))
    return lambda values: OPERATORS[sign](values, number)


def make_class_test(sign: str, value: str, class_names: Sequence[Label]) -> Test:
    """Return the function that compares class ids with that of the class that a value names.

    Raises:
        ValueError: there is no such class, which may be a typing error.
    """
    for number, label in enumerate(class_names):
        if _is_same(label, value):
            return lambda ids: OPERATORS[sign](ids, number)
    spelled = [_spell(label) for label in class_names]
    close = get_close_matches(value, spelled[:MAX_CLOSE])
    listed = join_items(map(quote, dict.fromkeys([*close, *spelled])))
    raise ValueError(f"has no class {quote(value)} (found: {listed})")


def make_text_test(sign: str, value: str, _: Sequence[Label]) -> Test:
    """Return the function that compares texts with a value."""
    expected = value.encode("utf-8", "surrogatepass")
    return lambda texts: OPERATORS[sign](_find_text(texts, expected), True)


def _find_text(texts: TextValues, expected: bytes) -> np.ndarray:
    """Return which texts are equal to one, bool[N]; only those of its length are read."""
    length = len(expected)
    is_equal: np.ndarray = texts.lengths == length
    candidates = np.flatnonzero(is_equal)
    if not length or not len(candidates):
        return is_equal
    # Every run of so many bytes is an item; equal length makes numpy's S compare all of them.
    runs = np.ndarray(len(texts.data) - length + 1, f"S{length}", texts.data, strides=(1,))
    step = max(LIMITS.batch_bytes // length, 1)
    for first in range(0, len(candidates), step):
        some = candidates[first : first + step]
        is_equal[some] = runs[texts.offsets[some]] == expected
    return is_equal


def _is_same(label: Label, value: str) -> bool:
    """Return whether a value names a class: as text, as number, or as true or false."""
    if isinstance(label, str):
        return label == value
    if isinstance(label, bool):
        return value.lower() == _spell(label)
    return _is_number(value) and label == _parse_number(value)


def _spell(label: Label) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _parse_number(value: str) -> int | float:
    if not _is_number(value):
        raise ValueError(f"holds numbers, found {quote(value)}, expected a number")
    return int(value) if value.lstrip("+-").isdigit() else float(value)


def _is_number(value: str) -> bool:
    return len(value) <= MAX_NUMBER_CHARACTERS and NUMBER.fullmatch(value) is not None
