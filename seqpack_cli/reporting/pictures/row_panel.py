"""The picture of varlen rows: a bar for each, with its sequences and the free room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.pictures.colours import HATCH, PALE, ROWS, row_colours
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts
from seqpack_cli.reporting.wording import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SEQUENCES_WITH_EDGES = 100  # of a row
MAX_BARS = 400  # of a row; more would be too narrow to be seen
NUM_PIXELS = 2_000  # of a row with more


def make_row_panel(rows: Sequence[np.ndarray], *, first: int, capacity: int) -> Panel:
    """Return the panel of some rows.

    Args:
        rows: the lengths of the sequences of each row, in their order.
        first: index of the first of these rows.
        capacity: maximum number of tokens of a row.
    """

    def draw(axes: Axes) -> None:
        for place, lengths in enumerate(rows):
            band = (place + 0.1, 0.8)
            axes.broken_barh([(0, capacity)], band, fc=PALE, ec=HATCH, hatch="////", lw=0)
            if len(lengths) > MAX_BARS:
                _draw_image(axes, lengths, band)
                continue
            starts = np.cumsum(lengths) - lengths
            axes.broken_barh(
                list(zip(starts, lengths, strict=True)),
                band,
                facecolors=row_colours(len(lengths)),
                edgecolor="white",
                lw=0.5 if len(lengths) <= MAX_SEQUENCES_WITH_EDGES else 0,
            )
        axes.set_ylim(len(rows), 0)
        axes.set_xlim(0, capacity)
        axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{first + n:,}" for n in range(len(rows))])
        label_counts(axes.xaxis)
        has_room = any(int(lengths.sum()) < capacity for lengths in rows)
        label = "token of the row; each colour is one sequence"
        axes.set_xlabel(label + ("; hatched: free" if has_room else ""))
        axes.set_ylabel("row")
        axes.grid(visible=False)

    last = first + len(rows) - 1
    which = f"Row {first:,}" if len(rows) == 1 else f"Rows {first:,} to {last:,}"
    num_sequences = sum(map(len, rows))  # or pieces
    title = f"{which} of up to {capacity:,} tokens: {count(num_sequences, 'sequence')}"
    return Panel("rows", title, draw, height=1.0 + 0.22 * len(rows))


def _draw_image(axes: Axes, lengths: np.ndarray, band: tuple[float, float]) -> None:
    """Draw a row of many sequences as an image, each pixel in the colour of its sequence."""
    from matplotlib.colors import to_rgb

    ends = np.cumsum(lengths)
    places = (np.arange(NUM_PIXELS) + 0.5) / NUM_PIXELS * ends[-1]
    sequences = np.searchsorted(ends, places, "right")
    palette = np.array([to_rgb(colour) for colour in ROWS])
    axes.imshow(
        palette[sequences % len(ROWS)][None],
        extent=(0, float(ends[-1]), band[0] + band[1], band[0]),
        aspect="auto",
        interpolation="nearest",
        zorder=2,
    )
