"""One batch whose rows are shared, token by token: its rows, or its streams as columns of steps.

Padding is shown as padding, and where a sequence begins as a border; of streams, where the state is
reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.reporting.batch_places import find_place, sort_by_line, spell_shape
from seqpack_cli.reporting.page.token_rows import find_special_tokens, show_token
from seqpack_cli.reporting.row_targets import NONE, judge_pieces
from seqpack_cli.reporting.row_values import read_row_values
from seqpack_cli.reporting.texts import open_texts, split_row
from seqpack_cli.reporting.wording import count
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS

MAX_ROWS = 8
MAX_CELLS = 240  # of a row
MAX_STREAMS = 12
MAX_STEPS = 64


@dataclass(frozen=True)
class _Cell:
    """One token, or a run of padding."""

    start: int  # in its row or stream
    span: int  # number of ids
    token: dict[str, Any]

    @classmethod
    def of_padding(cls, start: int, span: int) -> _Cell:
        text = "padding" if span == 1 else f"padding x {span:,}"
        label = f"{count(span, 'cell')} of padding"
        return cls(start, span, {"text": text, "label": label, "tags": "", "classes": "pad"})


def make_batch_cells(shards: ShardSet, index: int) -> dict[str, Any]:
    """Return the first rows of a batch as `rows`, or its first streams as `steps` of a table.

    Raises:
        FolderError: the batch is damaged.
    """
    batch, rules = shards[index], LAYOUTS[shards.layout]
    names, shape = ("row", "column"), batch.shape
    if len(shape) == 1:
        names, shape = ("row", "cell"), (1, *shape)
    if rules.carries_state:
        names, shape = ("stream", "step"), shape[::-1]
    most = (MAX_STREAMS, MAX_STEPS) if rules.carries_state else (MAX_ROWS, MAX_CELLS)
    num_lines, length = map(min, shape, most)
    places = [find_place(batch, rules, number) for number in range(len(batch.lengths))]
    begins = [place[names[1]] for place in places]
    lines = sort_by_line(places, shape[0])[:num_lines]
    cells = [_make_line(shards, batch, line, begins, length) for line in lines]
    hidden = f", the first {num_lines} {names[0]}s" * (num_lines < shape[0])
    hidden += f", the first {length} {names[1]}s" * (length < shape[1])
    found: dict[str, Any] = {
        "title": f"Batch {index:,}, token by token",
        "shape": spell_shape(batch.shape, rules) + hidden,
        "num_padding_cells": batch.count_padding(),
        "rows": [[cell.token for cell in line] for line in cells],
        "streams": [],
        "steps": [],
    }
    if rules.carries_state:
        found["streams"] = [f"stream {number}" for number in range(num_lines)]
        found["steps"] = _turn(cells, length)
    return found


def _make_line(
    shards: ShardSet, batch: Batch, line: list[int], begins: list[int], length: int
) -> list[_Cell]:
    """Return the cells of one row or stream, up to a length."""
    resets = batch.describe_shape().get("resets")
    cells: list[_Cell] = []
    end = 0
    for turn, number in enumerate(line):
        if begins[number] >= length:
            break
        if begins[number] > end:
            cells.append(_Cell.of_padding(end, begins[number] - end))
        tokens = _show_sequence(shards, batch, number, length - begins[number])
        first = "begin" if resets is None or resets[number] else "kept"
        for place, (span, token) in enumerate(tokens):
            marks = [token["classes"], "odd" * (turn % 2), first * (place == 0)]
            classes = " ".join(mark for mark in marks if mark)
            start = cells[-1].start + cells[-1].span if cells else 0
            cells.append(_Cell(start, span, {**token, "classes": classes}))
        end = begins[number] + int(batch.lengths[number])
    if end < length:
        cells.append(_Cell.of_padding(end, length - end))
    return cells


def _show_sequence(
    shards: ShardSet, batch: Batch, number: int, room: int
) -> list[tuple[int, dict[str, Any]]]:
    """Return the tokens of a sequence that fit, each with the number of its ids."""
    columns = read_row_values(batch, shards.columns, number)
    pieces = split_row(open_texts(shards), batch.row(number)[:room])
    marks = [NONE] * len(pieces)
    if TARGETS in columns:
        marks = judge_pieces(pieces, columns[TARGETS])
    special_tokens = find_special_tokens(shards)
    return [
        (len(piece.ids), show_token(piece, special_tokens, [], mark))
        for piece, mark in zip(pieces, marks, strict=True)
    ]


def _turn(lines: list[list[_Cell]], num_steps: int) -> list[list[dict[str, Any]]]:
    """Return for each step the cells that begin there, stream after stream."""
    steps: list[list[dict[str, Any]]] = [[] for _ in range(num_steps)]
    for line in lines:
        for cell in line:
            if cell.start < num_steps:
                span = min(cell.span, num_steps - cell.start)
                steps[cell.start].append({**cell.token, "span": span})
    return steps
