"""Draw tokens in cells: the text of each token, its ids below it, and below these its tags.

A line end is shown as ↵, spaces at the end of a token as ␣, other invisible characters as Python
escapes them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.column_facts import spell_tag
from seqpack_cli.reporting.wording import WIDTH, count_columns, cut, fill, show_token

INDENT = 2
MAX_LINES = 6  # of text, each with one of ids
CELL_WIDTH = WIDTH - INDENT - 2  # of a line that holds one token
MAX_TAG_WIDTH = 16
LEFT_TO_RIGHT_MARK = "\u200e"

Cell = list[str]  # a token's text, ids and tags, equally wide


def draw_tokens(
    tokens: Sequence[Mapping[str, Any]], *, num_tokens: int, tags: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Return the lines of the first tokens, and the number of those that do not fit.

    Args:
        tokens: the first pieces, each with its `text` and `ids`.
        num_tokens: of the whole sequence.
        tags: columns with one value per token.
    """
    lines: list[list[Cell]] = [[]]
    num_shown, room = 0, WIDTH - INDENT - 1
    for token in tokens:
        inside = slice(num_shown, num_shown + len(token["ids"]))
        cell = _make_cell(token, [values[inside] for values in tags.values()])
        needed = count_columns(cell[1]) + 1
        if needed > room and lines[-1]:
            if len(lines) == MAX_LINES:
                break
            lines.append([])
            room = WIDTH - INDENT - 1
        lines[-1].append(cell)
        room -= needed
        num_shown += len(token["ids"])
    drawn = [line for cells in lines if cells for line in _draw_line(cells)]
    if tags:
        drawn.append(cut(f"  below the ids: {', '.join(map(escape_controls, tags))}", WIDTH))
    hidden = num_tokens - num_shown
    return [*drawn, f"  and {hidden:,} more tokens (all with --json)"] if hidden else drawn


def _make_cell(token: Mapping[str, Any], tags: Sequence[Sequence[Any]]) -> Cell:
    text = cut(show_token(token["text"]), CELL_WIDTH)
    ids = cut(" ".join(map(str, token["ids"])), CELL_WIDTH)
    shown = [_show_tags(values) for values in tags]
    width = max(map(count_columns, (text, ids, *shown)))
    return [fill(text, width), ids.rjust(width), *(fill(each, width) for each in shown)]


def _show_tags(values: Sequence[Any]) -> str:
    """Return the tags of a token; of the ids of one character, those that have one."""
    spelled = " ".join(spell_tag(value) for value in values if value is not None)
    return cut(show_token(spelled), MAX_TAG_WIDTH)


def _draw_line(cells: Iterable[Cell]) -> list[str]:
    rows = zip(*cells, strict=True)
    return [f"{' ' * INDENT}│{'│'.join(map(_keep_in_place, row))}│" for row in rows]


def _keep_in_place(text: str) -> str:
    """Mark a right-to-left text, so that a terminal does not swap it with its neighbour."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text):
        return f"{LEFT_TO_RIGHT_MARK}{text}{LEFT_TO_RIGHT_MARK}"
    return text
