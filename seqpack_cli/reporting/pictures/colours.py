"""The colours of the pictures, dark to light: they can be told apart in greyscale too."""

from __future__ import annotations

DARK = "#20406e"
MIDDLE = "#5b8cc0"
LIGHT = "#f0b860"
PALE = "#e9edf2"  # padding, free room
HATCH = "#aab4c0"
LINE = "#b3261e"  # lines over bars and rows
INK = "#222222"
LABEL_BOX = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1.0}
# Neighbours differ in lightness.
ROWS = ("#20406e", "#f0b860", "#4f7f5f", "#c9dcef", "#8c4a63", "#9fc7a4", "#5b8cc0", "#f6dfb4")
DARK_ROWS = {"#20406e", "#4f7f5f", "#8c4a63", "#5b8cc0"}
MAX_DISTINCT = 12  # rows of a batch; a batch of more rows has one colour


def row_colours(num_rows: int) -> list[str]:
    """Return a colour for each row, or sequence of a row: neighbours have different ones."""
    return [ROWS[row % len(ROWS)] for row in range(num_rows)]
