"""The picture of rows or streams that sequences share: a bar for each, with what is empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.pictures.colours import HATCH, LINE, PALE, ROWS, row_colours
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SEQUENCES_WITH_EDGES = 100  # of a row
MAX_BARS = 400  # of a row; more would be too narrow to be seen
NUM_PIXELS = 2_000  # of a row with more


@dataclass(frozen=True)
class Bar:
    """One row or stream, and the sequences in it."""

    starts: np.ndarray  # the cell of the row where each sequence begins
    lengths: np.ndarray
    resets: np.ndarray | None = None  # whether the state is reset before each; None without a state


def make_row_panel(
    bars: Sequence[Bar],
    capacity: int,
    *,
    title: str,
    names: tuple[str, str] = ("row", "cell"),
    first: int = 0,
    empty: str = "padding",
) -> Panel:
    """Return the panel of some rows or streams.

    Args:
        capacity: maximum number of cells of a row.
        names: of a row and of its cells.
        first: number of the first row.
        empty: the name of cells that hold no token.
    """

    def draw(axes: Axes) -> None:
        for place, bar in enumerate(bars):
            band = (place + 0.1, 0.8)
            axes.broken_barh([(0, capacity)], band, fc=PALE, ec=HATCH, hatch="////", lw=0)
            if len(bar.lengths) > MAX_BARS:
                _draw_image(axes, bar, band)
                continue
            axes.broken_barh(
                list(zip(bar.starts, bar.lengths, strict=True)),
                band,
                facecolors=row_colours(len(bar.lengths)),
                edgecolor="white",
                lw=0.5 if len(bar.lengths) <= MAX_SEQUENCES_WITH_EDGES else 0,
            )
            if bar.resets is not None:
                places = bar.starts[bar.resets != 0]
                axes.vlines(places, place, place + 1, color=LINE, lw=1.6, clip_on=False, zorder=3)
        axes.set_ylim(len(bars), 0)
        axes.set_xlim(0, capacity)
        axes.set_yticks(np.arange(len(bars)) + 0.5, [f"{first + n:,}" for n in range(len(bars))])
        label_counts(axes.xaxis)
        label = f"{names[1]} of the {names[0]}; each colour is one sequence"
        label += f"; hatched: {empty}" * any(int(it.lengths.sum()) < capacity for it in bars)
        label += "; red line: reset of the state" * (bars[0].resets is not None)
        axes.set_xlabel(label)
        axes.set_ylabel(names[0])
        axes.grid(visible=False)

    return Panel("rows", title, draw, height=1.0 + 0.22 * len(bars))


def _draw_image(axes: Axes, bar: Bar, band: tuple[float, float]) -> None:
    """Draw a row of many sequences as an image, each pixel in the colour of its sequence."""
    from matplotlib.colors import to_rgb

    ends = bar.starts + bar.lengths
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
