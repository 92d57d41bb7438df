"""Varlen rows -> one bar each: the sequences that share it, and the room that is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqpack_cli.reporting.pictures.colours import HATCH, PALE, sequence_colours
from seqpack_cli.reporting.pictures.picture import Panel
from seqpack_cli.reporting.pictures.ticks import label_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_SEQUENCES_WITH_EDGES = 100  # of a row


def make_row_panel(rows: Sequence[np.ndarray], *, first: int, capacity: int) -> Panel:
    """Make the panel of some rows.

    Args:
        rows: of each row the lengths of its sequences, in their order.
        first: index of the first of these rows.
        capacity: tokens that a row has room for.
    """
    names = [f"{first + place:,}" for place in range(len(rows))]

    def draw(axes: Axes) -> None:
        axes.barh(names, [capacity] * len(rows), fc=PALE, ec=HATCH, hatch="////", lw=0)
        for name, lengths in zip(names, rows, strict=True):
            starts = np.cumsum(lengths) - lengths
            axes.barh(
                [name] * len(lengths),
                lengths,
                left=starts,
                color=sequence_colours(len(lengths)),
                edgecolor="white",
                lw=0.5 if len(lengths) <= MAX_SEQUENCES_WITH_EDGES else 0,
            )
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, capacity)
        label_counts(axes.xaxis)
        axes.set_xlabel("token of the row; a new colour is a new sequence, hatched is free")
        axes.set_ylabel("row (a batch of its own)")
        axes.grid(visible=False)

    last = first + len(rows) - 1
    which = f"Row {first:,}" if len(rows) == 1 else f"Rows {first:,} to {last:,}"
    num_sequences = sum(map(len, rows))
    title = f"{which} of at most {capacity:,} tokens, shared by {num_sequences:,} sequences"
    return Panel("rows", title, draw, height=1.0 + 0.22 * len(rows))
