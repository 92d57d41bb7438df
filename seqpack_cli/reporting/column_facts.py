"""Columns and their values in words: the line of each column, and the values of one row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqpack_cli.reporting.wording import count, cut, quote_text, show_bytes, show_share
from seqpack_cli.tokens.columns import TARGETS

MAX_LISTED_COLUMNS = 130  # of the classes of a column: they fit three lines of a terminal
MAX_NAME_COLUMNS = 24  # of a class
MAX_EXAMPLE_COLUMNS = 30
LEVELS = "▁▂▃▄▅▆▇█"  # of a histogram in one line
NONE_IN_BIN = "·"


def list_column_facts(columns: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the name of each column and what it holds, from `describe_columns`."""
    return [(column["name"], f"{column['kind']}, {_describe(column)}") for column in columns]


def spell_value(value: Any) -> str:
    """Return a value, or the name of a class, as JSON spells it.

    >>> spell_value("en"), spell_value(0.5), spell_value(True), spell_value(None)
    ('"en"', '0.5', 'true', 'none')
    """
    if value is None:
        return "none"
    return quote_text(value) if isinstance(value, str) else json.dumps(value)


def spell_tag(value: Any) -> str:
    """Return the class of a token as words, without quotes."""
    return value if isinstance(value, str) else spell_value(value)


def spell_number(value: float) -> str:
    """Return a number in six digits, an integer in all of them."""
    return f"{value:d}" if isinstance(value, int) else f"{value:.6g}"


def list_values(columns: Mapping[str, Any], *, in_short: bool = False) -> list[tuple[str, str]]:
    """Return the values of a row as words, from columns that have one value per sequence.

    Args:
        in_short: numbers in six digits.
    """
    return [
        (name, spell_number(value) if in_short and type(value) is float else spell_value(value))
        for name, value in columns.items()
        if not isinstance(value, list)
    ]


def select_tags(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of a row per token, without its targets, which are marked otherwise."""
    return {
        name: value
        for name, value in columns.items()
        if isinstance(value, list) and name != TARGETS
    }


def find_counts(columns: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the counts of the targets, from `describe_columns`; None if they are no column."""
    return next((column for column in columns if "num_targets" in column), None)


def _describe(column: dict[str, Any]) -> str:
    if "classes" in column:
        return _describe_classes(column)
    if "shares" in column:
        return _describe_targets(column)
    return _describe_numbers(column) if "histogram" in column else _describe_texts(column)


def _describe_classes(column: dict[str, Any]) -> str:
    words = count(column["num_classes"], "class")
    if column["num_unused_classes"]:
        words += f" ({column['num_unused_classes']:,} unused)"
    if "num_without_class" in column:
        num_with = column["num_values"] - column["num_without_class"]
        words += f", {count(num_with, 'token')} with one, {column['num_without_class']:,} without"
    return f"{words}: {_list_classes([each for each in column['classes'] if each['count']])}"


def _list_classes(classes: Sequence[dict[str, Any]]) -> str:
    """Return the largest classes with count and share, and the number of the others."""
    listed: list[str] = []
    room = MAX_LISTED_COLUMNS
    for entry in classes:
        name = cut(spell_value(entry["name"]), MAX_NAME_COLUMNS)
        words = f"{name}: {entry['count']:,} ({show_share(entry['share'])})"
        room -= len(words) + 2
        if room < 0:
            break
        listed.append(words)
    hidden = len(classes) - len(listed)
    return ", ".join(listed) + (f" and {hidden:,} more" if hidden else "") or "none"


def _describe_numbers(column: dict[str, Any]) -> str:
    if column["smallest"] is None:
        return "no values"
    smallest, largest = spell_number(column["smallest"]), spell_number(column["largest"])
    if column["smallest"] == column["largest"]:
        return f"{smallest} everywhere"
    span = f"{smallest} to {largest}, mean {spell_number(column['mean'])}"
    return f"{span}  {_draw_histogram([entry['count'] for entry in column['histogram']])}"


def _describe_targets(column: dict[str, Any]) -> str:
    words = f"{show_share(column['share'])} of the tokens"
    if not column["num_rows"]:
        return words
    shares = _draw_histogram([entry["count"] for entry in column["shares"]])
    return f"{words}; per {column['row']}  {shares}"


def _draw_histogram(counts: Sequence[int]) -> str:
    most = max(counts)
    levels = [-(-len(LEVELS) * number // most) for number in counts]
    return "".join(LEVELS[level - 1] if level else NONE_IN_BIN for level in levels)


def _describe_texts(column: dict[str, Any]) -> str:
    if column["example"] is None:
        return "all empty"
    empty = f", {column['num_empty']:,} empty" if column["num_empty"] else ""
    example = cut(quote_text(column["example"]), MAX_EXAMPLE_COLUMNS)
    longest = f"longest {show_bytes(column['longest'])}"
    return f"{show_bytes(column['num_bytes'])}, {longest}{empty}, as {example}"
