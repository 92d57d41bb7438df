"""The numbers of batches -> how much of each is padding, or how full each varlen row is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.batch_numbers import BatchNumbers
from seqpack_cli.reporting.pictures.colours import LABEL_BOX, LINE, MIDDLE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts, label_shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_STEPS = 400  # of the curve; more batches are drawn together, as many to a step


def make_padding_panel(numbers: BatchNumbers, layout: str) -> Panel:
    """Make the panel of the padding ratio by batch; for varlen, of how full the rows are."""
    if layout == "varlen":
        return _make_fullness_panel(numbers)
    mean = numbers.padding_ratio
    title = f"Padding by batch: {mean:.2%} of all cells"
    if layout == "packed":
        title = f"Padding that is not stored: {mean:.2%}, were these batches rectangles"

    def draw(axes: Axes) -> None:
        edges, fullness = _average(numbers)
        _draw_shares(axes, edges, 1 - fullness, mean)
        axes.set_ylim(0, min(1, 1.25 * max(0.04, mean, float((1 - fullness).max()))))
        axes.set_ylabel("padded cells / all cells")

    return Panel("padding", title, draw, height=2.6)


def _make_fullness_panel(numbers: BatchNumbers) -> Panel:
    mean = 1 - numbers.padding_ratio

    def draw(axes: Axes) -> None:
        edges, fullness = _average(numbers)
        _draw_shares(axes, edges, fullness, mean)
        axes.set_ylim(0, 1)
        axes.set_ylabel("tokens / room of the row")

    return Panel("fullness", f"How full the rows are: {mean:.2%} of their room", draw, height=2.6)


def _average(numbers: BatchNumbers) -> tuple[np.ndarray, np.ndarray]:
    """Give the edges of at most MAX_STEPS runs of batches, and tokens / cells of each run."""
    num_batches = len(numbers.num_cells)
    starts = np.arange(0, num_batches, -(-num_batches // MAX_STEPS))
    num_cells = np.add.reduceat(numbers.num_cells, starts)
    fullness = np.add.reduceat(numbers.num_tokens, starts) / np.maximum(num_cells, 1)
    return np.append(starts, num_batches), fullness


def _draw_shares(axes: Axes, edges: np.ndarray, shares: np.ndarray, mean: float) -> None:
    axes.stairs(shares, edges, fill=True, color=MIDDLE)
    axes.axhline(mean, color=LINE, lw=1, ls="--")
    is_high = mean >= 0.9
    axes.annotate(
        f"all batches {mean:.2%}",
        (1, mean),
        xycoords=("axes fraction", "data"),
        xytext=(-4, -5 if is_high else 5),
        textcoords="offset points",
        color=LINE,
        ha="right",
        va="top" if is_high else "bottom",
        bbox=LABEL_BOX,
    )
    axes.set_xlim(0, edges[-1])
    label_counts(axes.xaxis)
    label_shares(axes.yaxis)
    num_each = int(edges[1] - edges[0])
    axes.set_xlabel("batch" if num_each == 1 else f"batch, {num_each:,} to a step")
