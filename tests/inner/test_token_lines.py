"""Tokens drawn between borders: exact lines of small ones, and the width of any."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.errors import CONTROLS
from seqpack_cli.reporting.terminal.styles import GREEN, RESET, YELLOW, StyledLine
from seqpack_cli.reporting.terminal.token_lines import (
    LEFT_TO_RIGHT_MARK,
    MAX_LINES,
    draw_tokens,
)
from seqpack_cli.reporting.wording import WIDTH, count_columns


def token(text: str, *ids: int) -> dict[str, object]:
    return {"text": text, "ids": list(ids)}


def draw(*tokens: dict[str, object], **tags: list[object]) -> list[str]:
    num_tokens = sum(len(token["ids"]) for token in tokens)  # type: ignore[arg-type,misc]
    return draw_tokens(tokens, num_tokens=num_tokens, tags=tags)


def test_ids_stand_below_the_text_of_their_token() -> None:
    tokens = [token("The", 464), token(" quick", 2068), token(" brown", 7586)]
    assert draw(*tokens) == [
        "  │The│ quick│ brown│",
        "  │464│  2068│  7586│",
    ]


def test_character_of_several_tokens_has_all_their_ids() -> None:
    assert draw(token("a", 97), token("雨", 233, 155, 168), token("雨", 7)) == [
        "  │a │雨         │雨│",
        "  │97│233 155 168│ 7│",
    ]


def test_tags_stand_below_the_ids_of_their_token() -> None:
    tokens = [token("Rio", 7), token("雨", 233, 155, 168), token("x", 9)]
    assert draw(*tokens, ner=["LOC", None, "O", None, None], n=[1, 2, 3, 4, True]) == [
        "  │Rio│雨         │x   │",
        "  │  7│233 155 168│   9│",
        "  │LOC│O          │    │",
        "  │1  │2 3 4      │true│",
        "  below the ids: ner, n",
    ]


TARGETS = [
    {**token("It", 5), "targets": "none"},
    {**token(" is\x1b", 17), "targets": "all"},
    {**token("雨", 233, 155), "targets": "some"},
]


def test_targets_are_marked_below_their_text_without_colours() -> None:
    assert draw(*TARGETS, n=[1, 2, 3, 4]) == [
        "  │It│ is\\x1b│雨     │",
        "  │  │^^^^^^^│~~     │",
        "  │ 5│     17│233 155│",
        "  │1 │2      │3 4    │",
        "  ^ target, ~ token of which some ids are targets",
        "  below the ids: n",
    ]
    unmarked = {**token("a", 97), "targets": "none"}
    assert draw(unmarked) == ["  │a │", "  │97│"]


def test_targets_are_coloured_and_underlined_where_colours_are_shown() -> None:
    lines = draw_tokens(TARGETS, num_tokens=4, tags={}, colour=True)
    assert lines == [
        f"  │It│{GREEN} is\\x1b{RESET}│{YELLOW}雨{RESET}     │",
        "  │ 5│     17│233 155│",
        f"  {GREEN}target{RESET}, {YELLOW}token of which some ids are targets{RESET}",
    ]
    assert [isinstance(line, StyledLine) for line in lines] == [True, False, True]


def test_what_has_no_width_is_shown_escaped() -> None:
    tokens = [token("\n", 1), token("\t\x1b", 2), token("\u200d", 3), token("\u0301", 4)]
    assert draw(*tokens, token(" ", 5), token("a\u202e ", 6), token("", 7)) == [
        "  │↵│\\t\\x1b│\\u200d│◌\u0301│␣│a\\u202e␣│ │",
        "  │1│     2│     3│4│5│       6│7│",
    ]


def test_text_from_right_to_left_keeps_its_place() -> None:
    mark = LEFT_TO_RIGHT_MARK
    assert draw(token("a", 1), token("שלום", 2), token("1", 3)) == [
        f"  │a│{mark}שלום{mark}│1│",
        "  │1│   2│3│",
    ]


def test_tokens_go_on_in_the_next_lines_and_the_rest_is_counted() -> None:
    tokens = [token(f" {'x' * 24}", 1000 + number) for number in range(20)]
    lines = draw_tokens(tokens, num_tokens=1000, tags={})
    assert len(lines) == 2 * MAX_LINES + 1
    assert lines[0] == "  " + f"│ {'x' * 24}" * 2 + "│"
    assert lines[1] == "  │" + "1000│".rjust(26) + "1001│".rjust(26)
    assert lines[-2] == "  │" + "1010│".rjust(26) + "1011│".rjust(26)
    assert lines[-1] == "  and 988 more tokens (all with --json)"


def test_token_that_is_too_wide_is_cut() -> None:
    assert draw(token("x" * 100, 5), token("y", *range(100))) == [
        f"  │{'x' * 75}…│",
        f"  │{'5':>76}│",
        f"  │y{' ' * 75}│",
        f"  │{' '.join(map(str, range(28)))} 2…│",
    ]


def test_no_tokens_are_no_lines() -> None:
    assert draw_tokens([], num_tokens=0, tags={}) == []
    assert draw_tokens([], num_tokens=3, tags={}) == ["  and 3 more tokens (all with --json)"]


ODD = st.sampled_from(
    [*"ab \n\t雨👍ेा│", "\u0301", "\u200d", "\u202e", "ש", "ع", "\ufe0f", "\ud800"]
)
TOKENS = st.lists(
    st.builds(
        lambda text, ids: {"text": text, "ids": ids},
        st.text(st.one_of(ODD, st.characters()), max_size=12) | st.text(ODD, max_size=120),
        st.lists(st.integers(0, 2**31), min_size=1, max_size=9),
    ),
    max_size=60,
)


@given(TOKENS, st.integers(0, 1000))
def test_drawing_fits_and_its_borders_stand_below_each_other(
    tokens: list[dict[str, object]], num_more: int
) -> None:
    num_tokens = sum(len(token["ids"]) for token in tokens) + num_more  # type: ignore[arg-type]
    lines = draw_tokens(tokens, num_tokens=num_tokens, tags={})
    num_hidden = 0
    if lines and lines[-1].startswith("  and "):
        num_hidden = int(lines.pop().split()[1].replace(",", ""))
    assert len(lines) <= 2 * MAX_LINES
    num_ids = 0
    for text, ids in zip(lines[::2], lines[1::2], strict=True):
        assert count_columns(text) == len(ids) <= WIDTH
        assert not re.search(CONTROLS, text)
        borders = [place for place, character in enumerate(ids) if character == "│"]
        columns = [count_columns(text[:place]) for place, found in enumerate(text) if found == "│"]
        assert set(borders) <= set(columns)
        num_ids += len(ids.replace("│", " ").split())
    if not any("…" in line for line in lines):
        assert num_ids + num_hidden == num_tokens
