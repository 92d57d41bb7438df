"""Drawings of rows and streams that sequences share: exact lines, widths, and what they hide."""

from __future__ import annotations

import re
from itertools import accumulate, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.reporting.terminal.shared_row_lines import FREE, draw_one_row, draw_shared_rows
from seqpack_cli.reporting.terminal.staircase_lines import MAX_BARS, MAX_BLOCKS, PADDING
from seqpack_cli.reporting.wording import WIDTH

MAX_LENGTH = 2**31 - 1
LENGTHS = st.integers(1, 80) | st.integers(1, 1500)


def draw(lengths: list[int], capacity: int) -> list[str]:
    """Draw a row without padding."""
    starts = [0, *accumulate(lengths)][:-1]
    return draw_one_row(starts, lengths, num_cells=sum(lengths), capacity=capacity)


def test_one_row_is_drawn_as_segments_and_free_room() -> None:
    assert draw([5, 1, 2], 10) == [
        "  one row of up to 10 cells, 2 of them free; 1 cell = 4 blocks",
        "  3 sequences, alternately █ and ▓, free ·",
        "  row    ████████████████████▓▓▓▓████████········",
        "  cell   0                                     10",
    ]
    assert draw([1], 1) == [
        "  one row of up to 1 cell, 0 of them free; 1 cell = 4 blocks",
        "  1 sequence, alternately █ and ▓",
        "  row    ████",
        "  cell   0  1",
    ]


def test_padding_between_sequences_of_one_row_is_not_free_room() -> None:
    assert draw_one_row([0, 4], [3, 2], num_cells=8, capacity=10)[1:3] == [
        "  2 sequences, alternately █ and ▓, padding ░, free ·",
        "  row    ████████████░░░░▓▓▓▓▓▓▓▓░░░░░░░░········",
    ]


def test_one_row_of_many_sequences_goes_on_in_the_next_lines() -> None:
    assert draw([10] * 25 + [1] * 10, 300) == [
        "  one row of up to 300 cells, 40 of them free; 1 block = 2.5 cells",
        "  35 sequences, alternately █ and ▓, 6 too short to be drawn, free ·",
        f"  0      {'████▓▓▓▓' * 7}████",
        f"  150    {'▓▓▓▓████' * 5}▓█▓█{'·' * 16}",
    ]


def test_rows_of_one_length_have_a_line_each_and_show_their_padding() -> None:
    rows = [[(0, 3), (4, 2)], [(0, 7)], []]
    assert draw_shared_rows(rows, 7, names=("row", "column")) == [
        "  3 rows x 7 columns; 1 column = 4 blocks",
        "  3 sequences, alternately █ and ▓, padding ░",
        "  row 0   ████████████░░░░▓▓▓▓▓▓▓▓░░░░",
        "  row 1   ████████████████████████████",
        "  row 2   ░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
        "  column  0                          7",
    ]


def test_streams_mark_where_the_state_is_kept() -> None:
    streams = [[(0, 2), (2, 1)], [(0, 3)]]
    names = ("stream", "step")
    assert draw_shared_rows(streams, 3, names=names, keeps_state=[True, False]) == [
        "  2 streams x 3 steps; 1 step = 4 blocks",
        "  3 sequences, alternately █ and ▓; › goes on from the batch before, all others",
        "  reset the state",
        "  stream 0  ›████████▓▓▓▓",
        "  stream 1   ████████████",
        "  step       0          3",
    ]


def test_hidden_sequences_and_rows_are_counted() -> None:
    lines = draw([1000, 1, 1, 1000], 2002)
    assert "4 sequences, alternately █ and ▓, 2 too short to be drawn" in lines[1]
    assert lines[2] == f"  row    {'█' * 30}{'▓' * 30}"
    lines = draw_shared_rows([[(0, 9)]] * 40, 9, names=("row", "column"))
    assert lines[0] == "  40 rows x 9 columns, rows 0 to 15 drawn; 1 column = 4 blocks"


@given(st.lists(LENGTHS, min_size=1, max_size=400), st.integers(0, 20_000))
def test_drawings_of_one_row_fit_and_count_what_they_hide(lengths: list[int], free: int) -> None:
    capacity = sum(lengths) + free
    lines = draw(lengths, capacity)
    check_size(lines)
    (legend,) = [line for line in lines if "alternately █ and ▓" in line]
    drawn = [line for line in lines[lines.index(legend) + 1 :] if not line.startswith("  cell")]
    blocks = "".join(line.split()[-1] for line in drawn)
    num_seen = len([shade for shade, _ in groupby(blocks.rstrip(FREE))])
    found = re.search(r"([\d,]+) too short to be drawn", legend)
    num_hidden = int(found[1].replace(",", "")) if found else 0
    assert num_seen + num_hidden == len(lengths)
    assert abs(blocks.count(FREE) / len(blocks) - free / capacity) <= 1 / len(blocks)
    assert blocks == blocks.rstrip(FREE) + FREE * blocks.count(FREE)


@given(st.lists(st.lists(LENGTHS, max_size=60), min_size=1, max_size=40), st.integers(0, 99))
def test_drawings_of_rows_fit_and_show_the_share_of_padding(
    rows: list[list[int]], free: int
) -> None:
    row_length = max(max(map(sum, rows)) + free, 1)
    placed = [list(zip([0, *accumulate(row)][:-1], row, strict=True)) for row in rows]
    lines = draw_shared_rows(placed, row_length, names=("row", "column"))
    check_size(lines)
    bars = [line.split()[-1] for line in lines if re.match(r"  row \d+ ", line)]
    assert len(bars) == min(len(rows), MAX_BARS)
    for row, bar in zip(rows, bars, strict=False):
        padding = 1 - sum(row) / row_length
        assert abs(bar.count(PADDING) / len(bar) - padding) <= 1 / len(bar)


@pytest.mark.parametrize("longest", [1, 2, 59, 60, 61, 4096, MAX_LENGTH])
def test_drawings_of_extremes_fit(longest: int) -> None:
    lengths = [longest] * 3 + [1] * 1000
    check_size(draw(lengths, sum(lengths)))
    check_size(draw([longest], MAX_LENGTH))
    lines = [[(0, 1)], [(longest - 1, 1)]]
    names = ("stream", "step")
    check_size(draw_shared_rows(lines, longest, names=names, keeps_state=[True, False]))


def check_size(lines: list[str]) -> None:
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= MAX_BARS + 5
    assert all(line == line.rstrip() for line in lines)
    assert max(len(re.findall("[█▓░·]", line)) for line in lines) <= MAX_BLOCKS
