"""Columns, cuts and wraps of texts in any script; what stands in a line never leaves it."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqpack_cli.errors import CONTROLS
from seqpack_cli.reporting.wording import (
    VALUE_WIDTH,
    WIDTH,
    count_columns,
    cut,
    cut_front,
    fill,
    iter_characters,
    list_some,
    pair,
    pair_of_path,
    pair_of_text,
    quote_text,
    show_token,
    wrap,
)

FAMILY = "👨\u200d👩\u200d👧"
ODD = [
    *"a |雨👍ेा",
    "\u0301",
    "\u200d",
    "\u200e",
    "\xad",
    "🏽",
    "🇫",
    "🇷",
    "ᄒ",
    "ᅡ",
    "ᆫ",
    "한",
    "ש",
    "\ufe0f",
]
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")), max_size=60)
PRINTABLE = TEXTS.map(lambda text: re.sub(CONTROLS, "?", text))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("quick brown", 11),
        ("Щоранку", 7),
        ("雨が", 4),
        ("ｆｕｌｌ", 8),
        ("e\u0301", 1),
        ("a\u200d\u200e\ufe0f", 1),
        ("so\xadft", 5),
        ("👍", 2),
        (FAMILY, 6),
        ("שלום", 4),
        ("한", 2),
        ("\u1112\u1161\u11ab", 2),
    ],
)
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    assert count_columns(text) == columns


@given(PRINTABLE, PRINTABLE)
def test_columns_of_a_text_are_those_of_its_parts(first: str, second: str) -> None:
    assert count_columns(first + second) == count_columns(first) + count_columns(second)


@pytest.mark.parametrize(
    ("text", "width", "kept"),
    [
        ("quick", 5, "quick"),
        ("quick", 4, "qui…"),
        ("雨が降る", 8, "雨が降る"),
        ("雨が降る", 7, "雨が降…"),
        ("雨が降る", 6, "雨が…"),
        ("e\u0301a\u0300bc", 3, "e\u0301a\u0300…"),
        (f"a{FAMILY}b", 7, "a…"),
        (f"a{FAMILY}bc", 8, f"a{FAMILY}…"),
        ("a👍🏽b", 5, "a…"),
        ("🇫🇷🇩🇪🇫", 4, "🇫🇷…"),
        ("ᄒ\u1161\u11abᄒ\u1161", 3, "ᄒ\u1161\u11ab…"),
        ("quick", 1, "…"),
    ],
)
def test_cut_keeps_whole_characters(text: str, width: int, kept: str) -> None:
    assert cut(text, width) == kept


@pytest.mark.parametrize(
    ("text", "width", "kept"),
    [
        ("a/b.txt", 7, "a/b.txt"),
        ("data/b.txt", 7, "…/b.txt"),
        ("data/雨.txt", 7, "…雨.txt"),
        ("data/雨.txt", 6, "….txt"),
        ("e\u0301/e\u0301.gz", 5, "…e\u0301.gz"),
    ],
)
def test_cut_front_keeps_the_name(text: str, width: int, kept: str) -> None:
    assert cut_front(text, width) == kept


@given(PRINTABLE, st.integers(1, 12))
def test_what_is_cut_fits_and_is_an_end_of_the_text(text: str, width: int) -> None:
    kept = cut(text, width)
    assert count_columns(kept) <= width
    assert kept == text or (kept[-1] == "…" and text.startswith(kept[:-1]))
    kept = cut_front(text, width)
    assert count_columns(kept) <= width
    assert kept == text or (kept[0] == "…" and text.endswith(kept[1:]))
    assert count_columns(fill(kept, 14)) == 14


@given(TEXTS)
def test_characters_joined_are_the_text(text: str) -> None:
    characters = list(iter_characters(text))
    assert "".join(characters) == text
    for character in characters[1:]:
        assert unicodedata.category(character[0]) not in ("Mn", "Me")


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 8, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 6, ["one", "two", "three"]),
        ("one  two", 4, ["one", "two"]),
        ("unbreakable x", 4, ["unbr", "eaka", "ble", "x"]),
        ("雨が降る日は", 5, ["雨が", "降る", "日は"]),
        ("  indented", 6, ["  inde", "nted"]),
        ("0🏻", 2, ["0", "🏻"]),
        ("\u0301 a雨", 2, ["\u0301 a", "雨"]),
        (f"ab c{FAMILY}", 6, ["ab c", FAMILY]),
        ("a👍🏽", 3, ["a👍", "🏽"]),
    ],
)
def test_wrap_breaks_at_blanks_or_anywhere(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


def test_wrap_says_that_there_is_more() -> None:
    assert wrap("one two three four", 9, max_lines=1) == ["one two …"]
    assert wrap("one two three four", 7, max_lines=1) == ["one tw…"]
    assert wrap("one two three", 7, max_lines=2) == ["one two", "three"]


@given(PRINTABLE, st.integers(2, 12), st.integers(1, 5))
@example("0🏻", 2, 1)
@example("\u0301 a雨", 2, 2)
@example(f"ab c{FAMILY}", 6, 2)
@example(FAMILY, 2, 2)
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(
    text: str, width: int, max_lines: int
) -> None:
    lines = wrap(text, width)
    assert all(count_columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    limited = wrap(text, width, max_lines=max_lines)
    assert len(limited) <= max_lines
    assert all(count_columns(line) <= width for line in limited)
    assert limited == lines or (limited[-1][-1] == "…" and limited[:-1] == lines[: max_lines - 1])


@given(st.text(max_size=200), st.text(max_size=200))
def test_pairs_fit_a_line_whatever_they_say(text: str, path: str) -> None:
    lines = [pair("label", text), pair_of_path("label", path, ", record 1,234")]
    lines += pair_of_text("label", text, max_lines=3)
    for line in lines:
        assert count_columns(line) <= WIDTH
        assert not re.search(CONTROLS, line)
    assert len(lines) <= 5


def test_pair_of_a_long_path_shows_the_name_of_the_file() -> None:
    line = pair_of_path("source", "/folder" * 20 + "/雨.jsonl", ", record 7")
    assert count_columns(line) == WIDTH
    assert line.startswith("  source             …")
    assert line.endswith("/folder/folder/雨.jsonl, record 7")


def test_pair_is_cut_after_its_control_characters_are_escaped() -> None:
    assert pair("label", "\x1b" * 40) == "  label              " + "\\x1b" * 14 + "\\x…"


def test_pair_of_a_text_is_quoted_and_goes_on_below() -> None:
    assert pair_of_text("text", "a\n\x1b\u202eb", max_lines=2) == [
        '  text               "a\\n\\u001b\\u202eb"'
    ]
    assert pair_of_text("text", "word " * 30, max_lines=2) == [
        '  text               "' + " ".join(["word"] * 11),
        "                     " + " ".join(["word"] * 11) + " wor…",
    ]


def test_token_of_many_characters_without_width_is_cut() -> None:
    assert show_token("a" + "\u0301" * 1000) == "a" + "\u0301" * 303 + "…"
    assert show_token("a" + "\u200d" * 1000).endswith("\\u200d…")


def test_quoted_text_moves_no_cursor() -> None:
    every = "".join(map(chr, range(0x3000)))
    assert not re.search(CONTROLS, quote_text(every))


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [
        ([], 20, "none"),
        ([1, 2], 20, "1 2"),
        (list(range(17)), 59, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 and 1 more"),
        (list(range(17)), 16, "0 1 and 15 more"),
        ([10**30, 10**30], 20, "2 numbers"),
    ],
)
def test_numbers_are_listed_as_far_as_they_fit(values: list[int], width: int, shown: str) -> None:
    assert list_some(values, width) == shown


@given(st.lists(st.integers(0, 2**63), max_size=40))
def test_listed_numbers_fit_a_pair(values: list[int]) -> None:
    assert len(list_some(values)) <= VALUE_WIDTH
