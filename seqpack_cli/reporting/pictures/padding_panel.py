"""The picture of the padding ratio of each batch; of single rows, of how full each row is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.reporting.pictures.colours import HATCH, LINE, MIDDLE, PALE
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_cells, label_shares
from seqpack_cli.reporting.wording import count, show_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_STEPS = 400  # of the curve; of more batches, several share a step


def make_padding_panel(
    numbers: BatchTable, layout: str, *, has_free_room: bool = False, is_of_side: bool = False
) -> Panel:
    """Return the panel of the padding ratio by batch.

    Args:
        has_free_room: a batch is one row, which is not filled up; show how full the rows are.
        is_of_side: leave room in the title for the name of a side.
    """
    if has_free_room:
        return _make_fullness_panel(numbers)
    rules, mean = LAYOUTS[layout], numbers.padding_ratio
    title = f"Padding by batch: {show_share(mean)} of all cells"
    if not rules.fills_rectangle and not rules.shares_rows:
        title = f"Padding saved: the same batches with --layout padded have {show_share(mean)}"
        if is_of_side:
            title = f"Padding saved: {show_share(mean)} with --layout padded"

    def draw(axes: Axes) -> None:
        edges, fullness = _average(numbers)
        worst = np.maximum.reduceat(numbers.padding_ratios, edges[:-1])
        if len(worst) < len(numbers.num_rows):
            axes.stairs(worst, edges, color=HATCH, lw=0.8)
        _draw_shares(axes, edges, 1 - fullness, mean)
        axes.set_ylim(0, min(1, 1.1 * max(0.04, mean, float(worst.max()))))
        axes.set_ylabel("padded cells / all cells")

    return Panel("padding", title, draw, height=2.6)


def _make_fullness_panel(numbers: BatchTable) -> Panel:
    mean = 1 - numbers.padding_ratio

    def draw(axes: Axes) -> None:
        edges, fullness = _average(numbers)
        _draw_shares(axes, edges, fullness, mean)
        worst = np.minimum.reduceat(1 - numbers.padding_ratios, edges[:-1])
        if len(worst) < len(numbers.num_rows):
            axes.stairs(worst, edges, color=PALE, lw=0.8)
        axes.set_ylim(0, 1)
        axes.set_ylabel("tokens / room in the row")

    num_free = int((numbers.num_tokens < numbers.num_cells).sum())
    num_rows = count(len(numbers.num_rows), "row")
    title = f"Fill of the rows: {show_share(mean)}; {num_free:,} of {num_rows} not full"
    return Panel("fullness", title, draw, height=2.6)


def _average(numbers: BatchTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of at most MAX_STEPS runs of batches, and tokens / cells of each run."""
    num_batches = len(numbers.num_cells)
    starts = np.arange(0, num_batches, -(-num_batches // MAX_STEPS))
    num_cells = np.add.reduceat(numbers.num_cells, starts)
    fullness = np.add.reduceat(numbers.num_tokens, starts) / np.maximum(num_cells, 1)
    return np.append(starts, num_batches), fullness


def _draw_shares(axes: Axes, edges: np.ndarray, shares: np.ndarray, mean: float) -> None:
    axes.stairs(shares, edges, fill=True, color=MIDDLE)
    axes.axhline(mean, color=LINE, lw=1, ls="--")
    axes.annotate(
        f"dashed line: all batches, {show_share(mean)}",
        (1, 1.02),
        xycoords="axes fraction",
        color=LINE,
        ha="right",
        va="bottom",
    )
    axes.set_xlim(0, edges[-1])
    label_cells(axes.xaxis, int(edges[-1]))
    label_shares(axes.yaxis)
    num_each = int(edges[1] - edges[0])
    grouped = f"batch ({num_each:,} batches per step; pale line: the worst of them)"
    axes.set_xlabel("batch" if num_each == 1 else grouped)
