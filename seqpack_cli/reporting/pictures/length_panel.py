"""Lengths -> their histogram, with the percentiles that a training run is planned by."""

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
MAX_COUNTED_BARS = 20  # which have room for their numbers
MAX_TICKS = 12
LEAST_LAST_BAR = 2**0.25  # times its beginning: the longest may be a power of two
SHOWN = ("50", "90", "99")  # percentiles
LINE_STYLES = ("-", "--", ":")


def make_length_panel(lengths: np.ndarray, *, what: str) -> Panel:
    """Make the panel of a histogram.

    Args:
        lengths: int[N] in tokens, each at least 1, at least one.
        what: they are of, as "503 sequences".
    """
    span, mean = show_span(int(lengths.min()), int(lengths.max())), float(lengths.mean())

    def draw(axes: Axes) -> None:
        _draw_bars(axes, lengths)
        _draw_percentiles(axes, lengths)
        axes.set_xlabel("length in tokens")
        axes.set_ylabel(what.split()[1])
        label_counts(axes.yaxis)

    return Panel("lengths", f"Lengths of {what}: {span} tokens, mean {mean:,.1f}", draw, height=3.0)


def _draw_bars(axes: Axes, lengths: np.ndarray) -> None:
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
    counts = [entry["num_sequences"] for entry in entries]
    bars = axes.bar(starts, counts, ends - starts, align="edge", color=DARK, ec="white", lw=0.5)
    if len(entries) <= MAX_COUNTED_BARS:
        labels = [f"{number:,}" if number else "" for number in counts]
        axes.bar_label(bars, labels, fontsize=7, padding=1)


def _draw_percentiles(axes: Axes, lengths: np.ndarray) -> None:
    """Draw a line for each, its label at another height so that near ones stay readable."""
    from matplotlib.patheffects import withStroke

    axes.margins(y=0.4)
    percentiles = summarize_lengths(lengths)["percentiles"]
    names: dict[int, str] = {}
    for share in SHOWN:
        value = percentiles[share]
        names[value] = f"{names[value]} = p{share}" if value in names else f"p{share}"
    for place, (value, name) in enumerate(names.items()):
        outline = [withStroke(linewidth=2.5, foreground="white")]  # seen on dark bars too
        axes.axvline(value, color=LINE, lw=1, ls=LINE_STYLES[place], path_effects=outline)
        is_far_right = (
            axes.transAxes.inverted().transform(axes.transData.transform((value, 0)))[0] > 0.8
        )
        axes.annotate(
            f"{name} {value:,}",
            (value, 0.97 - 0.1 * place),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if is_far_right else 4, 0),
            textcoords="offset points",
            color=LINE,
            ha="right" if is_far_right else "left",
            va="top",
            bbox=LABEL_BOX,
        )
