"""What a batch costs, by which the batches of a step are balanced over the ranks.

The cost of "tokens" is the number of cells, tokens and padding: what embeddings and linear layers
compute. That of "attention" is the number of pairs of tokens that attend to each other, which is
most of the work where sequences are long. Costs are integers, so that all machines deal alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOKENS, _ = COSTS = ("tokens", "attention")


def count_costs(
    cost: str,
    num_cells: np.ndarray,
    lengths: np.ndarray,
    batch_offsets: np.ndarray,
    widths: np.ndarray | None,
) -> np.ndarray:
    """Return the cost of each batch, int64[batches].

    Args:
        cost: one of COSTS. "attention" is the sum of squared lengths, or of squared widths.
        num_cells: int64[batches].
        lengths: of all sequences, or pieces of them, which attend to themselves alone.
        batch_offsets: int64[batches + 1], where in lengths each batch begins.
        widths: int64[batches], of rectangles: their padding is computed too. None without them.

    >>> count_costs("attention", np.array([5]), np.array([3, 2]), np.array([0, 2]), None)
    array([13])
    >>> count_costs("attention", np.array([6]), np.array([3, 2]), np.array([0, 2]), np.array([3]))
    array([18])
    """
    if cost == TOKENS:
        return num_cells
    costs: np.ndarray
    if widths is not None:
        costs = num_cells * widths
    else:
        costs = np.add.reduceat(np.square(lengths, dtype=np.int64), batch_offsets[:-1])
    return costs


def add_sides(costs: Sequence[int], count: str | None) -> int:
    """Return what both sides of a pair cost together: the larger, or with "sum" their sum.

    >>> add_sides([5, 3], "max"), add_sides([5, 3], "sum")
    (5, 8)
    """
    return sum(costs) if count == "sum" else max(costs)
