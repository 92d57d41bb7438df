"""The order of batches -> which rank computes which batch at which step, as many on every rank.

At step s the ranks take the next batches of the order, one each. Ranks that wait for each other at
every step want batches of one cost there: balanced, batches of about one cost share a step, and the
ranks take turns with the largest. A few ns a batch; balanced about 0.2 us.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.shuffle import STEPS, shuffled
from seqpack_cli.errors import check_positive

STEPS_PER_WINDOW = 64  # sorted by cost together: neighbours differ little, composition stays random


def deal_steps(
    order: np.ndarray,
    world_size: int,
    *,
    drop_last: bool = False,
    costs: np.ndarray | None = None,
    seed: int | None = None,
) -> np.ndarray:
    """Deal batches to ranks, the same number to each.

    Args:
        order: int64[N], numbers of batches.
        world_size: ranks.
        drop_last: leave the last batches out if they are fewer than the ranks; else batches from
            the beginning of the order are repeated to make up for them.
        costs: of each batch by its number; balances steps by it, None does not.
        seed: of the order of balanced steps, which sorting brought into an order of cost; None
            leaves them there.

    Returns:
        int64[steps, world_size], the batch of each rank at each step.

    >>> deal_steps(np.array([5, 3, 4]), 2).tolist()
    [[5, 3], [4, 5]]
    """
    check_positive("world_size", world_size)
    num_steps = len(order) // world_size if drop_last else -(-len(order) // world_size)
    dealt = np.resize(order, num_steps * world_size)  # repeats from the beginning
    if costs is None:
        return dealt.reshape(num_steps, world_size)
    windows = np.arange(len(dealt)) // (STEPS_PER_WINDOW * world_size)
    steps = dealt[np.lexsort((-costs[dealt], windows))].reshape(num_steps, world_size)
    if seed is not None:
        steps = steps[shuffled(num_steps, seed=seed, stream=STEPS)]
    turns = (np.arange(num_steps)[:, None] + np.arange(world_size)) % world_size
    return np.take_along_axis(steps, turns, axis=1)


def put_first(order: np.ndarray, costs: np.ndarray, num_first: int) -> np.ndarray:
    """Put the batches that cost most before the others, which keep their order.

    >>> put_first(np.array([0, 1, 2]), np.array([5, 9, 7]), 1).tolist()
    [1, 0, 2]
    """
    places = np.sort(np.argsort(-costs[order], kind="stable")[:num_first])
    return np.concatenate([order[places], np.delete(order, places)])
