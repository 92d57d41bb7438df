"""Errors: their text, their exit codes, their way out of a worker."""

from __future__ import annotations

import pickle

import pytest

from seqpack_cli.errors import (
    DataError,
    FolderError,
    MachineError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(OptionError, 2), (DataError, 3), (FolderError, 4), (MachineError, 5)],
)
def test_error_carries_its_exit_code(kind: type[SeqpackError], exit_code: int) -> None:
    assert kind("text").exit_code == exit_code
    assert issubclass(kind, SeqpackError)


def test_error_text_has_the_hint_after_a_blank_line() -> None:
    assert str(DataError("a.txt:3: found x, expected y")) == "a.txt:3: found x, expected y"
    assert str(DataError("a.txt:3: found x", hint="do y")) == "a.txt:3: found x\n\nhint: do y"


def test_error_text_moves_no_cursor_and_ends_no_line() -> None:
    error = FolderError("a\x1b[2J\nb: found", hint="remove c\nd\x1b]0;e\x07 or \u202ef")
    assert str(error) == ("a\\x1b[2J\\nb: found\n\nhint: remove c\\nd\\x1b]0;e\\x07 or \\u202ef")


@pytest.mark.parametrize("hint", [None, "type this"])
def test_error_survives_the_pickle_of_a_worker(hint: str | None) -> None:
    error = pickle.loads(pickle.dumps(FolderError("where: what", hint)))  # noqa: S301
    assert type(error) is FolderError
    assert (error.message, error.hint) == ("where: what", hint)


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("a", "'a'"),
        ("a\nb\x00", "'a\\nb\\x00'"),
        (b"\xff", "b'\\xff'"),
        ("\ud800", "'\\ud800'"),
        ("x" * 58, "'" + "x" * 58 + "'"),
        ("x" * 59, "'" + "x" * 58 + "…"),
    ],
)
def test_quoted_value_is_one_line_of_60_characters(value: object, quoted: str) -> None:
    assert quote(value) == quoted
    assert len(quote(value)) <= 60


@pytest.mark.parametrize(
    ("items", "joined"),
    [("", ""), ("a", "a"), ("abcde", "a, b, c, d, e"), ("abcdef", "a, b, c, d, e and 1 more")],
)
def test_list_stops_at_five_items(items: str, joined: str) -> None:
    assert join_items(iter(items)) == joined
