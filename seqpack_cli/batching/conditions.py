"""Parse a condition of `pack --where`: a name, an operator and a value.

    lang = de          'my field' != "it's"          @length >= 8          @source = corpus/a*

A bare name is a column; `@source` and `@length` are built in. A name or value in single or double
quotes is taken as it is, with the quote itself doubled; a bare one ends before its last blanks. A
bare name has none of = ! < >. What a value means is up to the column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seqpack_cli.errors import OptionError, quote

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
BUILT_IN = ("@source", "@length")
EXAMPLE = "write a condition like 'lang = de', '@length >= 8' or '\"my field\" != \"a b\"'"
ONE_EACH = "pass --where once per condition, as --where 'a != 1' --where 'a != 2'; all must hold"
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"((?:[^"]|"")*)\"""")
_BARE = re.compile(r"@\w*|[^=!<>]*")
_MARKS = re.compile(r"[=!<>]*")
_BLANKS = re.compile(r"\s*")
# What may stand where an operator belongs.
_WORDS = re.compile(r"(?<=\s)(?:in|is|not|like|and|or)\s.*", re.DOTALL)
_JOINTS = re.compile(r",|&&|\|\||\b(?:and|or|in)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Condition:
    """What must hold for a sequence to be selected."""

    name: str  # of a column, or one of BUILT_IN
    operator: str  # one of OPERATORS
    value: str
    is_built_in: bool = False

    def __str__(self) -> str:
        name = self.name if self.is_built_in else _quote(self.name)
        return f"{name} {self.operator} {_quote(self.value)}"


def parse_condition(text: str) -> Condition:
    """Parse one condition.

    Raises:
        OptionError: it is not one; the message names the character from which on it is wrong.

    >>> parse_condition("lang != ' it''s '")
    Condition(name='lang', operator='!=', value=" it's ", is_built_in=False)
    """
    place = _skip_blanks(text, 0)
    is_bare = text[place : place + 1] not in ("'", '"')
    name, place = (_read_bare if is_bare else _read_quoted)(text, place)
    is_built_in = is_bare and name.startswith("@")
    if is_built_in and name not in BUILT_IN:
        raise _refuse(text, text.index("@"), name, " or ".join(BUILT_IN))
    if is_bare and not name:
        raise _refuse(text, place, text[place:], "a column, @source or @length")
    place = _skip_blanks(text, place)
    operator = _MARKS.match(text, place)[0]  # type: ignore[index]  # matches anywhere
    if not operator and (word := _WORDS.search(name)):
        raise _refuse(text, text.index(word[0]), word[0], "one of " + " ".join(OPERATORS))
    if operator not in OPERATORS:
        raise _refuse(text, place, operator or text[place:], "one of " + " ".join(OPERATORS))
    place = _skip_blanks(text, place + len(operator))
    value = text[place:].rstrip()
    if not value:
        raise _refuse(text, place, "", "a value, or '' for the empty text")
    if value[0] in "'\"":
        value, place = _read_quoted(text, place)
        place = _skip_blanks(text, place)
        if place < len(text):
            raise _refuse(text, place, text[place:], "the end after the closing quote")
    return Condition(name, operator, value, is_built_in)


def joins_conditions(value: str) -> bool:
    """Return whether a value that does not fit looks like several values or conditions.

    >>> [joins_conditions(value) for value in ("de and @length > 8", "de, en", "dandy")]
    [True, True, False]
    """
    return _JOINTS.search(value) is not None


def _skip_blanks(text: str, place: int) -> int:
    return _BLANKS.match(text, place).end()  # type: ignore[union-attr]  # matches anywhere


def _read_bare(text: str, place: int) -> tuple[str, int]:
    name = _BARE.match(text, place)[0].rstrip()  # type: ignore[index]  # matches anywhere
    return name, place + len(name)


def _read_quoted(text: str, place: int) -> tuple[str, int]:
    """Return the text between quotes, and the place after them."""
    found = _QUOTED.match(text, place)
    if found is None:
        raise _refuse(text, place, text[place:], f"a second {text[place]} that ends it")
    mark = text[place]
    return found[0][1:-1].replace(mark * 2, mark), found.end()


def _refuse(text: str, place: int, found: str, expected: str) -> OptionError:
    what = f"found {quote(found)} at character {place + 1}"
    if not found:
        what = f"ends after character {place}"
    hint = ONE_EACH if joins_conditions(found) else EXAMPLE
    return OptionError(f"--where {quote(text)}: {what}, expected {expected}", hint=hint)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
