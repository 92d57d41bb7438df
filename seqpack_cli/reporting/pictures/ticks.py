"""How the axes of the pictures are labelled: counts in whole numbers, shares in percent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis


def label_counts(axis: Axis) -> None:
    """Label an axis of tokens, rows or batches: whole numbers, 12,345."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def label_shares(axis: Axis) -> None:
    """Label an axis of shares: 12%, with the decimals that its ticks need."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))
