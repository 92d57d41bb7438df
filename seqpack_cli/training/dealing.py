"""How the batches of an epoch are dealt to ranks, and what is left after some steps of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.rank_steps import deal_steps, put_first
from seqpack_cli.training.epoch_plan import EpochPlan


@dataclass(frozen=True)
class Dealing:
    """One way of dealing, and how many steps were dealt so."""

    world_size: int
    drop_last: bool = False
    balance: bool = False
    longest_first: bool = False
    skip: tuple[int, ...] = ()  # numbers of batches, in rising order
    num_steps: int = 0

    def deal(
        self, plan: EpochPlan, rest: np.ndarray, *, seed: int | None, is_start: bool
    ) -> np.ndarray:
        """Deal all that is left.

        Args:
            rest: int64[N], numbers of batches in their order.
            seed: of the epoch, None where nothing is shuffled.
            is_start: whether training begins here.

        Returns:
            int64[steps, world_size].
        """
        order = rest[~np.isin(rest, self.skip)] if self.skip else rest
        longest = order[:0]
        if self.longest_first and is_start and len(order) >= self.world_size:
            order = put_first(order, plan.count_cells(), self.world_size)
            longest, order = np.split(order, [self.world_size])
        steps = deal_steps(
            order,
            self.world_size,
            drop_last=self.drop_last,
            costs=plan.count_cells() if self.balance else None,
            seed=seed,
        )
        return np.concatenate([longest.reshape(-1, self.world_size), steps])

    def leave(
        self, plan: EpochPlan, rest: np.ndarray, *, seed: int | None, is_start: bool
    ) -> np.ndarray:
        """Give what is left after `num_steps` steps, in the order it had."""
        steps = self.deal(plan, rest, seed=seed, is_start=is_start)
        return rest[~np.isin(rest, steps[: self.num_steps])]
