"""Lengths -> their histogram, with the percentiles that a training run is planned by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.lengths import count_bins, is_wide_range, summarize_lengths
from seqpack_cli.reporting.pictures.colours import DARK, LABEL_BOX, LINE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BARS = 48
SHOWN = ("50", "90", "99")  # percentiles


def make_length_panel(lengths: np.ndarray) -> Panel:
    """Make the panel of a histogram.

    Args:
        lengths: int[N] in tokens, each at least 1, at least one.
    """

    def draw(axes: Axes) -> None:
        _draw_bars(axes, lengths)
        _draw_percentiles(axes, lengths)
        axes.set_xlabel("length in tokens")
        axes.set_ylabel("sequences")
        label_counts(axes.yaxis)

    title = f"Lengths of {len(lengths):,} sequences, mean {float(lengths.mean()):,.1f} tokens"
    return Panel("lengths", title, draw, height=3.0)


def _draw_bars(axes: Axes, lengths: np.ndarray) -> None:
    entries = count_bins(lengths, max_bins=MAX_BARS)
    starts = np.array([entry["from"] for entry in entries], float)
    ends = np.array([entry["to"] for entry in entries], float) + 1
    if is_wide_range(int(starts[0]), int(ends[-1]) - 1):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        starts[0], ends[-1] = 2.0 ** np.floor(np.log2(starts[0])), 2 * starts[-1]
        axes.set_xlim(starts[0], ends[-1])
        axes.set_xticks([*starts, ends[-1]][:: 1 + len(starts) // 18])
        axes.set_xticks([], minor=True)
    else:
        starts, ends = starts - 0.5, ends - 0.5  # a length stands in the middle of its bar
        margin = (ends[-1] - starts[0]) * 0.02
        axes.set_xlim(starts[0] - margin, ends[-1] + margin)
        label_counts(axes.xaxis)
    counts = [entry["num_sequences"] for entry in entries]
    axes.bar(starts, counts, ends - starts, align="edge", color=DARK, edgecolor="white", lw=0.5)


def _draw_percentiles(axes: Axes, lengths: np.ndarray) -> None:
    """Draw a line for each, its label at another height so that near ones stay readable."""
    axes.margins(y=0.3)
    percentiles = summarize_lengths(lengths)["percentiles"]
    for place, share in enumerate(SHOWN):
        value = percentiles[share]
        axes.axvline(value, color=LINE, lw=1, ls=("-", "--", ":")[place])
        axes.annotate(
            f"p{share} {value:,}",
            (value, 0.97 - 0.09 * place),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            color=LINE,
            va="top",
            bbox=LABEL_BOX,
        )
