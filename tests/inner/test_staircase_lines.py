"""Drawings of batches: exact lines of small ones, widths and honesty of any."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.reporting.terminal.staircase_lines import (
    MAX_BARS,
    MAX_BLOCKS,
    PADDING,
    SOME,
    TOKENS,
    draw_packed,
    draw_padded,
)
from seqpack_cli.reporting.wording import WIDTH

MAX_LENGTH = 2**31 - 1
LENGTHS = st.integers(1, 80) | st.integers(1, 1500)


def slow_batch_sizes(lengths: list[int]) -> list[int]:
    return [sum(length > step for length in lengths) for step in range(max(lengths))]


def bars_of(lines: list[str]) -> list[str]:
    """Return the blocks of the rows, without their labels: they begin above the axis's 0."""
    axis = next(line for line in lines if line.startswith(("  step ", "  column ")))
    return [line[axis.index("0") :] for line in lines if line.startswith("  row")]


def test_packed_batch_is_a_staircase() -> None:
    assert draw_packed([5, 3, 3, 1], [4, 3, 3, 1, 1]) == [
        "  5 time steps; 1 step = 4 blocks",
        "  row 0        ████████████████████",
        "  row 1        ████████████",
        "  row 2        ████████████",
        "  row 3        ████",
        "  step         0   1   2   3      5",
        "  batch_sizes  4   3   3   1",
    ]


def test_packed_batch_of_many_steps_is_drawn_to_an_eighth_of_a_block() -> None:
    lengths = [480, 476, 243, 9, 1]
    assert draw_packed(lengths, slow_batch_sizes(lengths)) == [
        "  480 time steps; 1 block = 8.0 steps",
        f"  row 0        {'█' * 60}",
        f"  row 1        {'█' * 59}▌",
        f"  row 2        {'█' * 30}▍",
        "  row 3        █▏",
        "  row 4        ▏",
        "  step         0              120            240            360         480",
        "  batch_sizes  5              3              3              2",
    ]


def test_packed_batch_of_many_rows_says_what_all_and_what_some_of_a_bar_have() -> None:
    lengths = [60, 20, *[15] * 15, 14, 7]  # 19 rows, two a bar
    assert draw_packed(lengths, slow_batch_sizes(lengths)) == [
        "  60 time steps; 1 step = 1 block",
        "  █ tokens in all rows of the bar, ▒ in some",
        f"  rows 0-1     {'█' * 20}{'▒' * 40}",
        *(f"  rows {row}-{row + 1}     {'█' * 15}" for row in (2, 4, 6, 8)),
        *(f"  rows {row}-{row + 1}   {'█' * 15}" for row in (10, 12, 14)),
        f"  rows 16-17   {'█' * 14}▒",
        "  row 18       ███████",
        "  step         0              15             30             45           60",
        "  batch_sizes  19             2              1              1",
    ]


def test_padded_batch_is_a_rectangle() -> None:
    assert draw_padded([5, 3, 0], 6, padding_side="right") == [
        "  6 columns; 1 column = 4 blocks",
        "  █ tokens, ░ padding",
        "  row 0   ████████████████████░░░░",
        "  row 1   ████████████░░░░░░░░░░░░",
        "  row 2   ░░░░░░░░░░░░░░░░░░░░░░░░",
        "  column  0                      6",
    ]
    assert draw_padded([5, 3, 0], 6, padding_side="left")[2:] == [
        "  row 0   ░░░░████████████████████",
        "  row 1   ░░░░░░░░░░░░████████████",
        "  row 2   ░░░░░░░░░░░░░░░░░░░░░░░░",
        "  column  0                      6",
    ]


def test_padded_batch_shows_each_token_and_each_padding_cell_that_is_alone() -> None:
    first, second = draw_padded([999, 1], 1000, padding_side="right")[2:4]
    assert first == f"  row 0   {'█' * 59}░"
    assert second == f"  row 1   █{'░' * 59}"


def test_padded_batch_of_many_rows_says_what_all_and_what_some_of_a_bar_have() -> None:
    lines = draw_padded([4] * 16 + [3] + [0] * 3, 4, padding_side="left")
    assert lines[1] == "  █ tokens in all rows of the bar, ▒ in some, ░ padding"
    assert lines[-4:] == [
        "  rows 14-15  ████████████████",
        "  rows 16-17  ░░░░▒▒▒▒▒▒▒▒▒▒▒▒",
        "  rows 18-19  ░░░░░░░░░░░░░░░░",
        "  column      0              4",
    ]


@given(st.lists(LENGTHS, min_size=1, max_size=80))
def test_packed_drawings_fit_and_have_the_lengths(lengths: list[int]) -> None:
    lengths = sorted(lengths, reverse=True)
    batch_sizes = slow_batch_sizes(lengths)
    lines = draw_packed(lengths, batch_sizes)
    check_size(lines)
    bars = bars_of(lines)
    num_blocks = len(bars[0])
    size = -(-len(lengths) // MAX_BARS)
    assert len(bars) == -(-len(lengths) // size)
    for first, bar in enumerate(bars):
        rows = lengths[first * size : (first + 1) * size]
        exact = [length * num_blocks / lengths[0] for length in rows]
        assert bar.strip(TOKENS + SOME + "▏▎▍▌▋▊▉") == ""
        assert max(exact) - 1 <= len(bar) <= max(exact) + 1
        assert min(exact) - 1 <= bar.count(TOKENS) <= min(exact) + 1
        if SOME in bar:
            assert len(set(rows)) > 1
    steps, alive = (line.split()[1:] for line in lines[-2:])
    assert steps[-1] == f"{len(batch_sizes):,}"
    assert alive == [f"{batch_sizes[int(step.replace(',', ''))]:,}" for step in steps[:-1]]


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=80),
    st.integers(0, 3000),
    st.sampled_from(["left", "right"]),
)
def test_padded_drawings_fit_and_show_all_that_there_is(
    lengths: list[int], more: int, side: str
) -> None:
    lengths = sorted(lengths, reverse=True)
    width = max(lengths[0] + more, 1)
    lines = draw_padded(lengths, width, padding_side=side)
    check_size(lines)
    size = -(-len(lengths) // MAX_BARS)
    for first, bar in enumerate(bars_of(lines)):
        rows = lengths[first * size : (first + 1) * size]
        num_full, num_some = bar.count(TOKENS), bar.count(SOME)
        parts = [TOKENS * num_full, SOME * num_some, PADDING * (len(bar) - num_full - num_some)]
        assert bar == "".join(reversed(parts) if side == "left" else parts)
        assert (num_full > 0) == (min(rows) > 0)
        assert (num_full + num_some > 0) == (max(rows) > 0)
        if len(bar) > 1:
            assert (PADDING in bar) == (max(rows) < width)
        for found, length in ((num_full, min(rows)), (num_full + num_some, max(rows))):
            assert abs(found - length * len(bar) / width) <= 1


@pytest.mark.parametrize("longest", [1, 2, 59, 60, 61, 4096, MAX_LENGTH])
def test_drawings_of_extremes_fit(longest: int) -> None:
    lengths = [longest] * 3 + [1] * 1000
    check_size(draw_padded(lengths, longest, padding_side="left"))
    if longest <= 4096:
        check_size(draw_packed(lengths, slow_batch_sizes(lengths)))


def check_size(lines: list[str]) -> None:
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= MAX_BARS + 5
    assert all(line == line.rstrip() for line in lines)
    assert max(len(re.findall("[█▓▒░·▏▎▍▌▋▊▉]", line)) for line in lines) <= MAX_BLOCKS
