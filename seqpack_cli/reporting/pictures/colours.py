"""The colours of the pictures: dark to light, so that they are told apart in greyscale too."""

from __future__ import annotations

DARK = "#20406e"
MIDDLE = "#5b8cc0"
LIGHT = "#f0b860"
PALE = "#e9edf2"  # padding, free room
HATCH = "#aab4c0"
LINE = "#b3261e"  # what is drawn over the others
INK = "#222222"
LABEL_BOX = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1.0}
# Of few rows; those beside one another differ in lightness, whichever two.
ROWS = ("#20406e", "#f0b860", "#4f7f5f", "#c9dcef", "#8c4a63", "#9fc7a4", "#5b8cc0", "#f6dfb4")
DARK_ROWS = {"#20406e", "#4f7f5f", "#8c4a63", "#5b8cc0"}
MAX_DISTINCT = 12  # more rows go from dark to light, which is calmer


def row_colours(num_rows: int) -> list[str]:
    """Give each row its colour."""
    if num_rows <= MAX_DISTINCT:
        return [ROWS[row % len(ROWS)] for row in range(num_rows)]
    import matplotlib
    from matplotlib.colors import to_hex

    ramp = matplotlib.colormaps["cividis"]
    return [to_hex(ramp(0.08 + 0.84 * row / (num_rows - 1))) for row in range(num_rows)]


def sequence_colours(num_sequences: int) -> list[str]:
    """Give the sequences of one varlen row colours that tell neighbours apart."""
    return [ROWS[number % len(ROWS)] for number in range(num_sequences)]
