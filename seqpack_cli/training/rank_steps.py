"""Distribute batches over the ranks of a training run, with the same number of steps on each.

At each step the ranks take the next batches of the order, one each. In synchronous training each
step lasts as long as its most expensive batch. Balancing puts batches of similar cost into one step
and lets the ranks take turns with the most expensive one. It takes 0.1 us per batch.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.order import STEPS, shuffled
from seqpack_cli.errors import check_positive

# At least so many steps are sorted by cost together: the batches of a step then cost about the
# same, and which batches share a step stays random.
STEPS_PER_WINDOW = 64
# The most expensive batches of all, this share of the steps, are sorted together: they differ most,
# so that in windows the first step of each would cost far more for one rank than for the others.
STEPS_PER_TAIL_STEP = 32


def deal_steps(
    order: np.ndarray,
    world_size: int,
    *,
    drop_last: bool = False,
    repeated: np.ndarray | None = None,
    costs: np.ndarray | None = None,
    seed: int | None = None,
) -> np.ndarray:
    """Deal batches to ranks, the same number to each.

    Args:
        order: int64[N], batch numbers.
        world_size: number of ranks.
        drop_last: drop the last batches if they are fewer than the ranks; otherwise the first
            batches of `repeated` complete the last step.
        repeated: int64, at least one batch number; None uses `order`.
        costs: cost of each batch, indexed by batch number; balances all steps but an incomplete
            last one. None does not balance.
        seed: shuffles the balanced steps, which are sorted by cost; None leaves them sorted.

    Returns:
        int64[steps, world_size], the batch of each rank at each step.

    >>> deal_steps(np.array([5, 3, 4]), 2).tolist()
    [[5, 3], [4, 5]]
    """
    check_positive("world_size", world_size)
    num_full = len(order) // world_size * world_size
    steps, last = order[:num_full].reshape(-1, world_size), order[num_full:]
    if costs is not None:
        steps = _balance(steps, costs, seed)
    if drop_last or not len(last):
        return steps
    repeated = order if repeated is None else repeated
    last = np.concatenate([last, np.resize(repeated, world_size - len(last))])
    return np.concatenate([steps, last[None]])


def _balance(steps: np.ndarray, costs: np.ndarray, seed: int | None) -> np.ndarray:
    """Bring batches of similar cost into one step."""
    num_steps, world_size = steps.shape
    num_tail = num_steps // STEPS_PER_TAIL_STEP
    order = put_first(steps.reshape(-1), costs, num_tail * world_size)
    tail, rest = np.split(order.reshape(-1, world_size), [num_tail])
    # windows of almost equal size: the first ones have one more step
    num_windows = max(len(rest) // STEPS_PER_WINDOW, 1)
    size, num_larger = divmod(len(rest), num_windows)
    larger, others = np.split(rest, [num_larger * (size + 1)])
    windows = [
        _sort_rows(tail.reshape(1, -1), costs),
        _sort_rows(larger.reshape(num_larger, (size + 1) * world_size), costs),
        _sort_rows(others.reshape(num_windows - num_larger, size * world_size), costs),
    ]
    balanced = np.concatenate([window.reshape(-1, world_size) for window in windows])
    if seed is not None:
        balanced = balanced[shuffled(num_steps, seed=seed, stream=STEPS)]
    turns = (np.arange(num_steps)[:, None] + np.arange(world_size)) % world_size
    return np.take_along_axis(balanced, turns, axis=1)


def _sort_rows(batches: np.ndarray, costs: np.ndarray) -> np.ndarray:
    places = np.argsort(-costs[batches], axis=1, kind="stable")
    return np.take_along_axis(batches, places, axis=1)


def put_first(order: np.ndarray, costs: np.ndarray, num_first: int) -> np.ndarray:
    """Move the most expensive batches to the front; of equal costs, those that come first.

    Args:
        order: int64[N], batch numbers.
        costs: cost of each batch, indexed by batch number.
        num_first: how many batches to move; all if there are fewer.

    >>> put_first(np.array([0, 1, 2]), np.array([5, 9, 7]), 1).tolist()
    [1, 0, 2]
    """
    num_first = min(num_first, len(order))
    if not num_first:
        return order
    cost_of = costs[order]
    least = np.partition(cost_of, len(order) - num_first)[len(order) - num_first]
    above = np.flatnonzero(cost_of > least)
    equal = np.flatnonzero(cost_of == least)[: num_first - len(above)]
    places = np.sort(np.concatenate([above, equal]))
    return np.concatenate([order[places], np.delete(order, places)])
