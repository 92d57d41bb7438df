"""The histogram of lengths, with the percentiles 50, 90 and 99."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.lengths import count_bins, is_wide_range, summarize_lengths
from seqpack_cli.reporting.pictures.colours import DARK, LABEL_BOX, LINE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts
from seqpack_cli.reporting.wording import show_span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BARS = 48
MAX_COUNTED_BARS = 20  # more bars have no room for their numbers
HISTOGRAM_HEIGHT = 0.66  # of the axes; above are the labels of the percentiles
NUMBER_HEIGHT = 0.08  # of the axes, as all that follow: the number above a bar
DIGIT_WIDTH = 0.008
GAP = 0.01
LABEL_HEIGHT = 0.09
LABEL_WIDTH = 0.25  # of the longest label
MAX_TICKS = 12
LEAST_LAST_BAR = 2**0.5  # times its start: room for its number where the longest is a power of two
SHOWN = ("50", "90", "99")  # percentiles
LINE_STYLES = ("-", "--", ":")


def make_length_panel(lengths: np.ndarray, *, what: str) -> Panel:
    """Return the panel of a histogram.

    Args:
        lengths: int[N] in tokens, each at least 1, at least one.
        what: how many of what have these lengths, as "503 sequences".
    """
    span, mean = show_span(int(lengths.min()), int(lengths.max())), float(lengths.mean())

    def draw(axes: Axes) -> None:
        starts, heights = _draw_bars(axes, lengths)
        _draw_percentiles(axes, lengths, starts, heights)
        axes.set_xlabel("length in tokens")
        axes.set_ylabel(what.split()[1])
        label_counts(axes.yaxis)

    return Panel("lengths", f"Lengths of {what}: {span} tokens, mean {mean:,.1f}", draw, height=3.0)


def _draw_bars(axes: Axes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw the histogram; return the left edges of its bars and the height of each.

    The height includes the number above a bar.
    """
    entries = count_bins(lengths, max_bins=MAX_BARS)
    starts = np.array([entry["from"] for entry in entries], float)
    ends = np.array([entry["to"] for entry in entries], float) + 1
    if is_wide_range(int(starts[0]), int(ends[-1]) - 1):
        ends[-1] = max(ends[-1], starts[-1] * LEAST_LAST_BAR)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlim(starts[0], ends[-1])
        powers = 2.0 ** np.arange(np.ceil(np.log2(starts[0])), np.log2(ends[-1]))
        axes.set_xticks(powers[:: 1 + (len(powers) - 1) // MAX_TICKS])
        axes.set_xticks([], minor=True)
    else:
        starts, ends = starts - 0.5, ends - 0.5  # a length stands in the middle of its bar
        margin = (ends[-1] - starts[0]) * 0.02
        axes.set_xlim(starts[0] - margin, ends[-1] + margin)
        label_counts(axes.xaxis)
    counts = np.array([entry["num_sequences"] for entry in entries])
    heights = counts / counts.max() * HISTOGRAM_HEIGHT
    axes.set_ylim(0, counts.max() / HISTOGRAM_HEIGHT)
    bars = axes.bar(starts, counts, ends - starts, align="edge", color=DARK, ec="white", lw=0.5)
    if len(entries) <= MAX_COUNTED_BARS:
        widths = _find_fraction(axes, ends) - _find_fraction(axes, starts)
        labels = [f"{number:,}" if number else "" for number in counts]
        has_room = np.array([len(label) * DIGIT_WIDTH for label in labels]) < widths
        labels = [label if fits else "" for label, fits in zip(labels, has_room, strict=True)]
        axes.bar_label(bars, labels, fontsize=7, padding=1)
        heights += np.where(has_room, NUMBER_HEIGHT, 0)
    return starts, heights


def _draw_percentiles(
    axes: Axes, lengths: np.ndarray, starts: np.ndarray, heights: np.ndarray
) -> None:
    """Draw a line from the bar of each percentile up to its label; no line crosses a text."""
    percentiles = summarize_lengths(lengths)["percentiles"]
    names: dict[int, str] = {}
    for share in SHOWN:
        value = percentiles[share]
        names[value] = f"{names[value]} = p{share}" if value in names else f"p{share}"
    values = np.array(list(names))
    places = _find_fraction(axes, values)
    is_left = _choose_sides(places)
    for order, level in enumerate(_choose_levels(is_left)):
        value = int(values[order])
        top = 1 - LABEL_HEIGHT * level
        bottom = heights[np.searchsorted(starts, value, "right") - 1] + GAP
        axes.plot(
            [value, value],
            [bottom, top],
            color=LINE,
            lw=1,
            ls=LINE_STYLES[order],
            transform=axes.get_xaxis_transform(),
        )
        axes.annotate(
            f"{names[value]} {value:,}",
            (value, top),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if is_left[order] else 4, 0),
            textcoords="offset points",
            color=LINE,
            ha="right" if is_left[order] else "left",
            va="top",
            bbox=LABEL_BOX,
        )


def _find_fraction(axes: Axes, values: np.ndarray) -> np.ndarray:
    """Return where lengths are on the axis, from 0 at its left end to 1."""
    points = axes.transData.transform(np.stack([values, np.zeros(len(values))], axis=1))
    fractions: np.ndarray = axes.transAxes.inverted().transform(points)[:, 0]
    return fractions


def _choose_sides(places: np.ndarray) -> list[bool]:
    """Return for each line, left to right, whether its label is on its left.

    All labels are on one side of their lines if they have room there. Else the lines are so far
    apart that those of the left half and those of the right half do not reach each other.
    """
    if places[-1] < 1 - LABEL_WIDTH:
        return [False] * len(places)
    if places[0] > LABEL_WIDTH:
        return [True] * len(places)
    return [bool(place > 0.5) for place in places]


def _choose_levels(is_left: list[bool]) -> list[int]:
    """Return how far below the top the label of each line is, 0 for the highest.

    Of labels on the right of their lines the leftmost is the highest, of those on the left the
    rightmost: a line ends at its own label, so it is below the labels that extend over it.
    """
    right = [number for number, side in enumerate(is_left) if not side]
    left = [number for number, side in enumerate(is_left) if side]
    highest_first = right + left[::-1]
    return [highest_first.index(number) for number in range(len(is_left))]
