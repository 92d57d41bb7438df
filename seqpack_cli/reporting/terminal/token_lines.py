"""Draw tokens in cells: the text of each token, its ids below it, and below these its tags.

Without a tokenizer the ids stand in place of the texts. The text of a target is coloured and
underlined, or marked in a line of its own. A line end is shown as ↵, spaces at the end of a token
as ␣, other invisible characters as Python escapes them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.column_facts import spell_tag
from seqpack_cli.reporting.row_targets import ALL, NONE, SOME
from seqpack_cli.reporting.terminal.styles import GREEN, YELLOW, StyledLine, style
from seqpack_cli.reporting.wording import WIDTH, count_columns, cut, fill, show_token

INDENT = 2
MAX_LINES = 6  # of text, each with one of ids
CELL_WIDTH = WIDTH - INDENT - 2  # of a line that holds one token
MAX_TAG_WIDTH = 16
LEFT_TO_RIGHT_MARK = "\u200e"

COLOURS = {ALL: GREEN, SOME: YELLOW}
MARKS = {ALL: "^", SOME: "~", NONE: " "}
LEGEND = {ALL: "target", SOME: "token of which some ids are targets"}


class _Cell(NamedTuple):
    """A token."""

    text: str
    below: list[str]  # its ids and tags, all as wide as the cell
    targets: str  # whether all, some or none of its ids are targets
    width: int  # columns


def draw_tokens(
    tokens: Sequence[Mapping[str, Any]],
    *,
    num_tokens: int,
    tags: Mapping[str, Sequence[Any]],
    colour: bool = False,
) -> list[str]:
    """Return the lines of the first tokens, and the number of those that do not fit.

    Args:
        tokens: the first pieces, each with its `text` (or None) and `ids`, and maybe its `targets`.
        num_tokens: of the whole sequence.
        tags: columns with one value per token.
        colour: show targets by colour and underline, which only a terminal understands.
    """
    lines: list[list[_Cell]] = [[]]
    num_shown, room = 0, WIDTH - INDENT - 1
    for token in tokens:
        inside = slice(num_shown, num_shown + len(token["ids"]))
        cell = _make_cell(token, [values[inside] for values in tags.values()])
        needed = cell.width + 1
        if needed > room and lines[-1]:
            if len(lines) == MAX_LINES:
                break
            lines.append([])
            room = WIDTH - INDENT - 1
        lines[-1].append(cell)
        room -= needed
        num_shown += len(token["ids"])
    drawn = [line for cells in lines if cells for line in _draw_line(cells, colour=colour)]
    drawn += _explain({cell.targets for cells in lines for cell in cells}, colour=colour)
    if tags:
        drawn.append(cut(f"  below the ids: {', '.join(map(escape_controls, tags))}", WIDTH))
    hidden = num_tokens - num_shown
    return [*drawn, f"  and {hidden:,} more tokens (all with --json)"] if hidden else drawn


def _make_cell(token: Mapping[str, Any], tags: Sequence[Sequence[Any]]) -> _Cell:
    ids = cut(" ".join(map(str, token["ids"])), CELL_WIDTH)
    has_text = token["text"] is not None
    text = cut(show_token(token["text"]), CELL_WIDTH) if has_text else ids
    shown = [_show_tags(values) for values in tags]
    width = max(map(count_columns, (text, ids, *shown)))
    below = [ids.rjust(width)] if has_text else []
    below += [fill(each, width) for each in shown]
    return _Cell(text, below, token.get("targets", NONE), width)


def _show_tags(values: Sequence[Any]) -> str:
    """Return the tags of a token; of the ids of one character, those that have one."""
    spelled = " ".join(spell_tag(value) for value in values if value is not None)
    return cut(show_token(spelled), MAX_TAG_WIDTH)


def _draw_line(cells: Sequence[_Cell], *, colour: bool) -> Iterator[str]:
    """Yield the lines of some cells: texts, marks unless targets are coloured, ids and tags."""
    texts = [_keep_in_place(fill(cell.text, cell.width)) for cell in cells]
    has_targets = any(cell.targets != NONE for cell in cells)
    if has_targets and colour:
        yield StyledLine(_join([_colour(cell) for cell in cells]))
    else:
        yield _join(texts)
    if has_targets and not colour:
        marks = [MARKS[cell.targets] * max(count_columns(cell.text), 1) for cell in cells]
        yield _join([fill(mark, cell.width) for mark, cell in zip(marks, cells, strict=True)])
    for row in zip(*(cell.below for cell in cells), strict=True):
        yield _join(list(map(_keep_in_place, row)))


def _join(texts: Sequence[str]) -> str:
    return f"{' ' * INDENT}│{'│'.join(texts)}│"


def _colour(cell: _Cell) -> str:
    """Return the text of a cell, coloured if it is a target; the space beside it is not."""
    text, space = _keep_in_place(cell.text), fill("", cell.width - count_columns(cell.text))
    colour = COLOURS.get(cell.targets)
    return escape_controls(text) + space if colour is None else style(text, colour) + space


def _explain(found: set[str], *, colour: bool) -> list[str]:
    """Return the line that explains the marks that were drawn, if there are any."""
    known = [(targets, words) for targets, words in LEGEND.items() if targets in found]
    if not known:
        return []
    if colour:
        return [StyledLine("  " + ", ".join(style(words, COLOURS[it]) for it, words in known))]
    return ["  " + ", ".join(f"{MARKS[targets]} {words}" for targets, words in known)]


def _keep_in_place(text: str) -> str:
    """Mark a right-to-left text, so that a terminal does not swap it with its neighbour."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text):
        return f"{LEFT_TO_RIGHT_MARK}{text}{LEFT_TO_RIGHT_MARK}"
    return text
