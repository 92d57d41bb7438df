"""The picture of one packed or padded batch: its rows over time steps or columns.

In a packed batch the right edge is `batch_sizes`: at step t the rows above it are alive. A small
batch shows each token in its cell, with its place in `data`, and each row in a colour of its own.
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
    MAX_DISTINCT,
    MIDDLE,
    PALE,
    row_colours,
)
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_cells
from seqpack_cli.reporting.wording import count, cut, show_share
from seqpack_cli.shards.layouts import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 256  # that are drawn; of more, every k-th
MAX_CELL_ROWS = 12
MAX_CELL_STEPS = 20
CHARACTERS_PER_INCH = 13.0  # at 8 points
CELLS_WIDTH = 7.8  # inches of the drawing

Texts = Sequence[Sequence[str]]  # of each row's tokens


def make_batch_panel(batch: Batch, *, title: str, texts: Texts | None = None) -> Panel:
    """Return the panel of a batch.

    Args:
        title: the beginning of the title; the numbers of rows and tokens follow it.
        texts: the text of each token, shown in the cells of a small batch; see `is_small`.
    """
    num_rows, num_steps = len(batch.lengths), batch.num_steps
    alive = batch.describe_shape().get("batch_sizes")

    def draw(axes: Axes) -> None:
        _draw_rows(axes, batch, np.linspace(0, num_rows - 1, min(num_rows, MAX_ROWS)))
        if alive is not None:
            _draw_edge(axes, batch.lengths)
        if texts is not None and is_small(batch):
            _draw_cells(axes, batch, texts)
            _number_cells(axes, batch, alive)
        else:
            label_cells(axes.xaxis, num_steps)
            label_cells(axes.yaxis, num_rows)
            axes.set_xlabel(
                _explain_cells(batch)
                if alive is None
                else "time step t; red line: batch_sizes[t], the number of rows alive at step t"
            )
        axes.set_xlim(0, num_steps)
        axes.set_ylim(num_rows, 0)
        axes.set_ylabel(_name_rows(batch))
        axes.grid(visible=False)

    num_tokens = int(batch.lengths.sum())
    share = show_share(1 - num_tokens / (num_rows * num_steps))
    filler = f" ({count(batch.num_filler_rows, 'filler row')})" if batch.num_filler_rows else ""
    steps = count(num_steps, "step" if alive else "column")
    title += f": {count(num_rows, 'row')}{filler}, {steps}, {count(num_tokens, 'token')}, "
    title += f"no padding (padded: {share})" if alive else f"{share} padding"
    return Panel("batch", title, draw, height=_choose_height(num_rows, is_small(batch)))


def is_small(batch: Batch) -> bool:
    """Return whether each cell is large enough to hold its token."""
    return len(batch.lengths) <= MAX_CELL_ROWS and batch.num_steps <= MAX_CELL_STEPS


def _name_rows(batch: Batch) -> str:
    """Return the label of the rows; those of a decoder may be in the order of the encoder's."""
    if batch.encoder_rows is not None:
        return "row (coloured as the encoder's)"
    return "row, longest first" if (np.diff(batch.lengths) <= 0).all() else "row"


def _choose_colours(batch: Batch) -> list[str]:
    """Return the colour of each row; a decoder's row has that of the encoder's."""
    colours, rows = row_colours(len(batch.lengths)), batch.encoder_rows
    return colours if rows is None else [colours[row] for row in rows]


def _explain_cells(batch: Batch) -> str:
    """Return the label of the columns, with the meaning of hatched and crossed cells."""
    has_padding = int(batch.lengths[: len(batch.lengths) - batch.num_filler_rows].min())
    label = "column"
    if has_padding < batch.num_steps:
        label += "; hatched: padding"
    return label + ("; crossed: filler rows" if batch.num_filler_rows else "")


def _choose_height(num_rows: int, has_cells: bool) -> float:
    return 1.0 + 0.42 * num_rows if has_cells else min(4.0, 1.8 + 0.08 * num_rows)


def _draw_rows(axes: Axes, batch: Batch, places: np.ndarray) -> None:
    """Draw some rows, evenly spread, over the padding: of many rows only their outline."""
    rows, num_rows = places.round().astype(int), len(batch.lengths)
    edges = np.linspace(0, num_rows, len(rows) + 1)
    starts, lengths = batch.first_steps[rows], batch.lengths[rows]
    first_filler = num_rows - batch.num_filler_rows
    if "width" in batch.describe_shape():
        axes.axhspan(0, first_filler, fc=PALE, ec=HATCH, hatch="////", lw=0, zorder=0)
    if batch.num_filler_rows:
        axes.axhspan(first_filler, num_rows, fc="white", ec=HATCH, hatch="xxx", lw=0, zorder=0)
    if num_rows > MAX_DISTINCT:
        axes.stairs(
            starts + lengths,
            edges,
            baseline=starts,
            orientation="horizontal",
            fill=True,
            color=MIDDLE,
        )
        return
    axes.barh(
        edges[:-1],
        lengths,
        np.diff(edges),
        left=starts,
        align="edge",
        color=_choose_colours(batch),
        edgecolor="white",
        lw=0.5,
    )


def _draw_edge(axes: Axes, lengths: np.ndarray) -> None:
    """Draw `batch_sizes` as a line: level while the same rows are alive, up where some end."""
    ends, firsts = np.unique(lengths[::-1], return_index=True)  # rising; the last row ends first
    alive = len(lengths) - firsts
    times = np.repeat(np.concatenate([[0], ends]), 2)[1:]
    counts = np.append(np.repeat(alive, 2), 0)
    axes.plot(times, counts, color=LINE, lw=1.4, clip_on=False, zorder=3)


def _draw_cells(axes: Axes, batch: Batch, texts: Texts) -> None:
    most = max(1, int(CELLS_WIDTH / batch.num_steps * CHARACTERS_PER_INCH))
    colours = _choose_colours(batch)
    for row, tokens in enumerate(texts):
        first, cells = int(batch.first_steps[row]), batch.find_cells(row).tolist()
        ink = "white" if colours[row] in DARK_ROWS else INK
        for column, (token, cell) in enumerate(zip(tokens, cells, strict=True), first):
            if column > first:
                axes.plot([column] * 2, [row + 0.04, row + 0.96], color="white", lw=0.8)
            for height, text, size in ((0.38, cut(token, most), 8), (0.76, str(cell), 6)):
                middle = column + 0.5, row + height
                axes.text(*middle, text, ha="center", va="center", color=ink, size=size)


def _number_cells(axes: Axes, batch: Batch, alive: Sequence[int] | None) -> None:
    """Label rows and steps in the middle of their cells, a packed batch with `batch_sizes` too."""
    num_rows, num_steps = len(batch.lengths), batch.num_steps
    axes.set_yticks(np.arange(num_rows) + 0.5, [str(row) for row in range(num_rows)])
    labels = [str(step) for step in range(num_steps)]
    label = f"{_explain_cells(batch)}; small numbers: index in data"
    if alive is not None:
        labels = [f"{step}\n{number}" for step, number in enumerate(alive)]
        label = (
            "time step t, and below it batch_sizes[t], the number of rows alive (red line); "
            "small numbers: index in data"
        )
    axes.set_xticks(np.arange(num_steps) + 0.5, labels)
    axes.tick_params(length=0)
    axes.set_xlabel(label)
