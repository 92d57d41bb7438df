"""Labels of the axes of the pictures: counts as whole numbers, shares in percent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.ticker import MaxNLocator


def label_counts(axis: Axis) -> None:
    """Label an axis of tokens or sequences: whole numbers, 12,345."""
    axis.set_major_locator(_make_locator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def label_cells(axis: Axis, num_cells: int) -> None:
    """Label an axis of rows, columns or batches in the middle of their cells (width 1)."""
    ticks = [int(tick) for tick in _make_locator().tick_values(0, max(num_cells - 1, 1))]
    shown = [tick for tick in ticks if 0 <= tick < num_cells]
    axis.set_ticks([tick + 0.5 for tick in shown], [f"{tick:,}" for tick in shown])


def label_shares(axis: Axis) -> None:
    """Label an axis of shares in percent, with as many decimals as its ticks need."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))


def _make_locator() -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1)
