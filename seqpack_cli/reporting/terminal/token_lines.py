"""Draw tokens in cells: the text of each token, and its ids below it.

A line end is shown as ↵, spaces at the end of a token as ␣, other invisible characters as Python
escapes them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqpack_cli.reporting.wording import WIDTH, count_columns, cut, fill, show_token

INDENT = 2
MAX_LINES = 6  # of text, each with one of ids
CELL_WIDTH = WIDTH - INDENT - 2  # of a line that holds one token
LEFT_TO_RIGHT_MARK = "\u200e"

Cell = tuple[str, str]  # a token's text and ids, equally wide


def draw_tokens(tokens: Sequence[Mapping[str, Any]], *, num_tokens: int) -> list[str]:
    """Return the lines of the first tokens, and the number of those that do not fit.

    Args:
        tokens: the first pieces, each with its `text` and `ids`.
        num_tokens: of the whole sequence.
    """
    lines: list[list[Cell]] = [[]]
    num_shown, room = 0, WIDTH - INDENT - 1
    for token in tokens:
        cell = _make_cell(token)
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
    hidden = num_tokens - num_shown
    return [*drawn, f"  and {hidden:,} more tokens (all with --json)"] if hidden else drawn


def _make_cell(token: Mapping[str, Any]) -> Cell:
    text = cut(show_token(token["text"]), CELL_WIDTH)
    ids = cut(" ".join(map(str, token["ids"])), CELL_WIDTH)
    width = max(count_columns(text), len(ids))
    return fill(text, width), ids.rjust(width)


def _draw_line(cells: Iterable[Cell]) -> list[str]:
    texts, ids = zip(*cells, strict=True)
    return [f"{' ' * INDENT}│{'│'.join(map(_keep_in_place, texts))}│", f"  │{'│'.join(ids)}│"]


def _keep_in_place(text: str) -> str:
    """Mark a right-to-left text, so that a terminal does not swap it with its neighbour."""
    if any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text):
        return f"{LEFT_TO_RIGHT_MARK}{text}{LEFT_TO_RIGHT_MARK}"
    return text
