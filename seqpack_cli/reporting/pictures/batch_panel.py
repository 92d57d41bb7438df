"""One batch of packed or padded rows -> the staircase: rows over time steps, each in its colour.

In a packed batch the edge of the stairs is `batch_sizes`: at step t the rows above it are alive. A
batch that is small enough shows each token in its cell, with its place in `data`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.pictures.colours import (
    DARK_ROWS,
    HATCH,
    INK,
    LINE,
    PALE,
    row_colours,
)
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_cells
from seqpack_cli.reporting.wording import count, cut, show_share
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 256  # that are drawn; of more, every k-th
MAX_ROWS_WITH_EDGES = 64
MAX_CELL_ROWS = 12
MAX_CELL_STEPS = 20
CHARACTERS_PER_INCH = 13.0  # at 8 points
CELLS_WIDTH = 7.8  # inches of the drawing

Texts = Sequence[Sequence[str]]  # of each row's tokens


def make_batch_panel(
    batch: PackedBatch | PaddedBatch, *, index: int, name: str = "Batch", texts: Texts | None = None
) -> Panel:
    """Make the panel of a batch.

    Args:
        index, name: of the batch, for the title.
        texts: what stands in the cells, if they are few enough; see `is_small`.
    """
    num_rows, num_steps = len(batch.lengths), _count_steps(batch)
    num_cells, num_tokens = num_rows * num_steps, int(batch.lengths.sum())

    def draw(axes: Axes) -> None:
        rows = np.linspace(0, num_rows - 1, min(num_rows, MAX_ROWS)).round().astype(int)
        _draw_rows(axes, batch, rows, num_steps)
        if isinstance(batch, PackedBatch):
            _draw_edge(axes, batch.lengths)
        if texts is not None and is_small(batch):
            _draw_cells(axes, batch, texts)
            _number_cells(axes, batch)
        else:
            label_cells(axes.xaxis, num_steps)
            label_cells(axes.yaxis, num_rows)
            axes.set_xlabel(
                "time step t; the red edge is batch_sizes[t], the rows alive at step t"
                if isinstance(batch, PackedBatch)
                else "column; hatched cells are padding, crossed ones rows that only fill up"
            )
        axes.set_xlim(0, num_steps)
        axes.set_ylim(num_rows, 0)
        axes.set_ylabel("row, longest first")
        axes.grid(visible=False)

    share = show_share(1 - num_tokens / num_cells)
    rows, tokens = count(num_rows, "row"), count(num_tokens, "token")
    if isinstance(batch, PackedBatch):
        title = f"{name} {index:,} (packed): {rows}, {count(num_steps, 'step')}, {tokens}; "
        title += f"a rectangle has {share} padding"
    else:
        if batch.num_filler_rows:
            rows += f", {batch.num_filler_rows:,} of them filler"
        title = f"{name} {index:,} (padded): {rows}, {count(num_steps, 'column')}, {tokens}; "
        title += f"{share} padding"
    return Panel("batch", title, draw, height=_choose_height(num_rows, is_small(batch)))


def is_small(batch: PackedBatch | PaddedBatch) -> bool:
    """Say whether each cell is large enough to hold its token."""
    return len(batch.lengths) <= MAX_CELL_ROWS and _count_steps(batch) <= MAX_CELL_STEPS


def _count_steps(batch: PackedBatch | PaddedBatch) -> int:
    return len(batch.batch_sizes) if isinstance(batch, PackedBatch) else batch.ids.shape[1]


def _choose_height(num_rows: int, has_cells: bool) -> float:
    return 1.0 + 0.42 * num_rows if has_cells else min(4.0, 1.8 + 0.08 * num_rows)


def _draw_rows(
    axes: Axes, batch: PackedBatch | PaddedBatch, rows: np.ndarray, num_steps: int
) -> None:
    tops = np.linspace(0, len(batch.lengths), len(rows) + 1)
    heights, lengths = np.diff(tops), batch.lengths[rows]
    starts = np.zeros(len(rows))
    if isinstance(batch, PaddedBatch):
        if batch.padding_side == "left":
            starts = num_steps - lengths
        num_rows = len(batch.lengths)
        first_filler = num_rows - batch.num_filler_rows
        axes.axhspan(0, first_filler, fc=PALE, ec=HATCH, hatch="////", lw=0, zorder=0)
        if batch.num_filler_rows:
            axes.axhspan(first_filler, num_rows, fc="white", ec=HATCH, hatch="xxx", lw=0, zorder=0)
    axes.barh(
        tops[:-1],
        lengths,
        heights,
        left=starts,
        align="edge",
        color=row_colours(len(rows)),
        edgecolor="white",
        lw=0.5 if len(rows) <= MAX_ROWS_WITH_EDGES else 0,
    )


def _draw_edge(axes: Axes, lengths: np.ndarray) -> None:
    """Draw `batch_sizes`: level while a number of rows is alive, up where some have ended."""
    ends, firsts = np.unique(lengths[::-1], return_index=True)  # rising; the last row ends first
    alive = len(lengths) - firsts
    times = np.repeat(np.concatenate([[0], ends]), 2)[1:]
    counts = np.append(np.repeat(alive, 2), 0)
    axes.plot(times, counts, color=LINE, lw=1.4, clip_on=False, zorder=3)


def _draw_cells(axes: Axes, batch: PackedBatch | PaddedBatch, texts: Texts) -> None:
    num_steps = _count_steps(batch)
    most = max(1, int(CELLS_WIDTH / num_steps * CHARACTERS_PER_INCH))
    colours = row_colours(len(batch.lengths))
    for row, tokens in enumerate(texts):
        length = int(batch.lengths[row])
        first = 0
        if isinstance(batch, PaddedBatch) and batch.padding_side == "left":
            first = num_steps - length
        ink = "white" if colours[row] in DARK_ROWS else INK
        for step, token in enumerate(tokens):
            column = first + step
            if step:
                axes.plot([column] * 2, [row + 0.04, row + 0.96], color="white", lw=0.8)
            place = row * num_steps + column
            if isinstance(batch, PackedBatch):
                place = int(batch.batch_sizes[:step].sum()) + row
            shown = cut(token, most)
            middle = column + 0.5
            axes.text(middle, row + 0.38, shown, ha="center", va="center", color=ink, size=8)
            axes.text(middle, row + 0.76, str(place), ha="center", va="center", color=ink, size=6)


def _number_cells(axes: Axes, batch: PackedBatch | PaddedBatch) -> None:
    """Number rows and steps at the middle of their cells, and tell how many rows are alive."""
    num_rows, num_steps = len(batch.lengths), _count_steps(batch)
    axes.set_yticks(np.arange(num_rows) + 0.5, [str(row) for row in range(num_rows)])
    labels = [str(step) for step in range(num_steps)]
    label = "column; hatched cells are padding; small numbers: the places in data"
    if isinstance(batch, PackedBatch):
        labels = [f"{step}\n{alive}" for step, alive in enumerate(batch.batch_sizes.tolist())]
        label = (
            "above: time step t; below: batch_sizes[t], the rows alive (the red edge); "
            "in cells: the place in data"
        )
    axes.set_xticks(np.arange(num_steps) + 0.5, labels)
    axes.tick_params(length=0)
    axes.set_xlabel(label)
