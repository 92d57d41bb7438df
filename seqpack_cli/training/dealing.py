"""How the batches of an epoch are dealt to ranks, and what is left after some steps of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from seqpack_cli.batching.rank_steps import deal_steps, put_first
from seqpack_cli.training.epoch_plan import EpochPlan


@dataclass(frozen=True)
class Dealing:
    """One way of dealing, and how many steps were dealt so."""

    world_size: int
    drop_last: bool
    balance: bool
    longest_first: bool
    skip: tuple[int, ...]  # numbers of batches, in rising order
    num_steps: int = 0

    @classmethod
    def from_state(cls, state: Any) -> Dealing:
        """Read what `to_state` gave.

        Raises:
            ValueError: it is something else.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(state, dict) or set(state) != names:
            raise ValueError(f"the state has no dealing of {', '.join(sorted(names))}: {state!r}")
        skip = state["skip"]
        flags = (state["drop_last"], state["balance"], state["longest_first"])
        if not (
            _is_count(state["world_size"])
            and state["world_size"] > 0
            and _is_count(state["num_steps"])
            and all(type(flag) is bool for flag in flags)
            and isinstance(skip, list)
            and all(map(_is_count, skip))
        ):
            raise ValueError(f"the state has a dealing that can not be: {state!r}")
        return cls(**{**state, "skip": tuple(sorted(set(skip)))})

    def to_state(self) -> dict[str, Any]:
        """Give numbers, flags and a list."""
        return {**asdict(self), "skip": [*self.skip]}

    def is_like(self, other: Dealing) -> bool:
        """Say whether both deal in the same way."""
        return replace(self, num_steps=0) == replace(other, num_steps=0)

    def check_skip(self, plan: EpochPlan) -> None:
        """Raise ValueError for a number to skip that is no batch's."""
        for number in (*self.skip[:1], *self.skip[-1:]):
            if not 0 <= number < len(plan.keys):
                raise ValueError(f"batch {number} to skip, expected one of {len(plan.keys)} from 0")

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
        order = _leave_out(rest, np.array(self.skip, np.int64), plan)
        longest = order[:0]
        if self.longest_first and is_start and len(order) >= self.world_size:
            order = put_first(order, plan.count_cells(), self.world_size)
            longest, order = np.split(order, [self.world_size])
        steps = deal_steps(
            order,
            self.world_size,
            drop_last=self.drop_last,
            repeated=self._find_repeated(plan),
            costs=plan.count_cells() if self.balance else None,
            seed=seed,
        )
        return np.concatenate([longest.reshape(-1, self.world_size), steps])

    def leave(
        self, plan: EpochPlan, rest: np.ndarray, *, seed: int | None, is_start: bool
    ) -> np.ndarray:
        """Give what is left after `num_steps` steps, in the order it had.

        Raises:
            ValueError: there are not so many, or a number to skip is no batch's.
        """
        self.check_skip(plan)
        steps = self.deal(plan, rest, seed=seed, is_start=is_start)
        if self.num_steps > len(steps):
            raise ValueError(
                f"the state has {self.num_steps} steps of {self.world_size} ranks, the epoch "
                f"{len(steps)}"
            )
        return _leave_out(rest, steps[: self.num_steps], plan)

    def _find_repeated(self, plan: EpochPlan) -> np.ndarray:
        """Give the batches that make up a last step: the first of the epoch."""
        num_wanted = self.world_size + len(self.skip)
        return _leave_out(plan.order[:num_wanted], np.array(self.skip, np.int64), plan)


def _leave_out(rest: np.ndarray, numbers: np.ndarray, plan: EpochPlan) -> np.ndarray:
    if not numbers.size:
        return rest
    is_out = np.zeros(len(plan.keys), bool)
    is_out[numbers] = True
    left: np.ndarray = rest[~is_out[rest]]
    return left


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
