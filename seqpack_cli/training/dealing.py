"""Deal the batches of an epoch to ranks, and find which are left after some steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from seqpack_cli.errors import check_choice
from seqpack_cli.runs.options import check_options
from seqpack_cli.training.batch_costs import COSTS, TOKENS
from seqpack_cli.training.epoch_plan import EpochPlan
from seqpack_cli.training.rank_steps import deal_steps, put_first
from seqpack_cli.training.ranks import MAX_RANKS

NO_BATCH = -1  # in the last step, of a rank that has none
NOT_FOR_STREAMS = ("drop_last", "balance", "longest_first", "skip")  # the order is fixed


@dataclass(frozen=True)
class SamplerOptions:
    """How an EpochSampler deals the batches of an epoch to ranks.

    Args:
        drop_last: leave out the last batches of an epoch if they are fewer than the ranks.
        repeat: if they are fewer than the ranks, fill up the last step with batches from the
            beginning of the epoch. With False and without drop_last, all ranks together get every
            batch exactly once, for validation: some ranks get one batch less than others, or none.
        balance: the cost that is about the same for all ranks at each step. "tokens": the cells of
            a batch, tokens and padding. "attention": the sum of squared lengths (padded: rows x
            width^2). None does not balance.
        longest_first: begin epoch 0 with the batches of most cells, one for each rank, so that
            running out of memory shows at once.
        skip: numbers of batches of shards to leave out.

    Raises:
        ValueError: both drop_last and repeat=False, or there is no such balance.
    """

    drop_last: bool = False
    repeat: bool = True
    balance: str | None = None
    longest_first: bool = False
    skip: Collection[int] = ()

    def __post_init__(self) -> None:
        check_options(self)
        check_choice("balance", self.balance, (None, *COSTS))
        if self.drop_last and not self.repeat:
            raise ValueError("drop_last=True conflicts with repeat=False")
        object.__setattr__(self, "skip", tuple(sorted(set(self.skip))))


@dataclass(frozen=True)
class Dealing:
    """How batches are dealt, and how many steps were dealt that way."""

    world_size: int
    options: SamplerOptions
    num_steps: int = 0

    @classmethod
    def from_state(cls, state: Any) -> Dealing:
        """Read a state written by `to_state`, which once had no `repeat`.

        Raises:
            ValueError: it is not such a state.
        """
        if isinstance(state, dict):
            state = {"repeat": True, **state}
        options = {field.name for field in fields(SamplerOptions)}
        names = {"world_size", "num_steps", *options}
        flags = options - {"skip", "balance"}
        if not isinstance(state, dict) or set(state) != names:
            raise ValueError(f"the state has taken {state!r}, expected {', '.join(sorted(names))}")
        skip = state["skip"]
        if not (
            type(state["world_size"]) is int
            and 1 <= state["world_size"] <= MAX_RANKS
            and _is_count(state["num_steps"])
            and state["balance"] in (None, *COSTS)
            and all(type(state[name]) is bool for name in flags)
            and isinstance(skip, list)
            and all(map(_is_count, skip))
        ):
            raise ValueError(f"the state has taken {state!r}, a value in it is out of range")
        found = SamplerOptions(**{name: state[name] for name in options})
        return cls(state["world_size"], found, state["num_steps"])

    def to_state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        flat = {"world_size": self.world_size, **asdict(self.options), "num_steps": self.num_steps}
        return {**flat, "skip": [*self.options.skip]}

    def is_like(self, other: Dealing) -> bool:
        """Return whether both deal in the same way."""
        return replace(self, num_steps=0) == replace(other, num_steps=0)

    def check(self, plan: EpochPlan) -> None:
        """Raise ValueError if `skip` has a number that no batch has, or streams conflict."""
        for number in self.options.skip:
            if not 0 <= number < len(plan.keys):
                raise ValueError(f"skip has batch {number}, expected 0 to {len(plan.keys) - 1}")
        if plan.num_streams is None:
            return
        for name in NOT_FOR_STREAMS:
            if getattr(self.options, name):
                raise ValueError(
                    f"{name}={getattr(self.options, name)!r} conflicts with streams: "
                    "all ranks take all batches, in the order of the data"
                )
        if plan.num_streams % self.world_size:
            raise ValueError(
                f"world_size is {self.world_size}, expected a number that divides the "
                f"{plan.num_streams} streams of a batch: each rank takes as many of them"
            )

    def deal(
        self, plan: EpochPlan, rest: np.ndarray, *, seed: int | None, is_start: bool
    ) -> np.ndarray:
        """Deal the batches that are left.

        Args:
            rest: int64[N], numbers of batches in order.
            seed: of the epoch; None without shuffling.
            is_start: whether training begins here.

        Returns:
            int64[steps, world_size]; with repeat=False the last step may end with NO_BATCH.
        """
        if plan.num_streams is not None:
            return np.broadcast_to(rest[:, None], (len(rest), self.world_size))
        options = self.options
        order, longest = self._skip(rest, plan), rest[:0]
        if options.longest_first and is_start and len(order) >= self.world_size:
            order = put_first(order, plan.count_costs(TOKENS), self.world_size)
            longest, order = np.split(order, [self.world_size])
        steps = deal_steps(
            order,
            self.world_size,
            drop_last=options.drop_last,
            repeated=self._find_repeated(plan),
            costs=plan.count_costs(options.balance) if options.balance else None,
            seed=seed,
        )
        return np.concatenate([longest.reshape(-1, self.world_size), steps])

    def leave(
        self, plan: EpochPlan, rest: np.ndarray, *, seed: int | None, is_start: bool
    ) -> np.ndarray:
        """Return the batches left after `num_steps` steps, in the same order.

        Raises:
            ValueError: there are fewer steps, or options conflict with the plan.
        """
        self.check(plan)
        steps = self.deal(plan, rest, seed=seed, is_start=is_start)
        if self.num_steps > len(steps):
            raise ValueError(
                f"the state has {self.num_steps} steps of {self.world_size} ranks, the epoch has "
                f"{len(steps)}"
            )
        taken = steps[: self.num_steps]
        if plan.num_streams is not None:
            taken = taken[:, 0]
        return _leave_out(rest, taken[taken != NO_BATCH], plan)

    def count_batches(self, plan: EpochPlan, rank: int) -> int:
        """Count the batches of a whole epoch for one rank."""
        num_batches, num_ranks = len(plan.keys) - len(self.options.skip), self.world_size
        if plan.num_streams is not None:
            return num_batches
        if self.options.drop_last:
            return num_batches // num_ranks
        return -(-(num_batches - (0 if self.options.repeat else rank)) // num_ranks)

    def _find_repeated(self, plan: EpochPlan) -> np.ndarray:
        """Return what fills up the last step: the first batches of the epoch, or NO_BATCH."""
        if not self.options.repeat:
            return np.array([NO_BATCH])
        return self._skip(plan.order[: self.world_size + len(self.options.skip)], plan)

    def _skip(self, rest: np.ndarray, plan: EpochPlan) -> np.ndarray:
        return _leave_out(rest, np.array(self.options.skip, np.int64), plan)


def deal_epoch(
    plan: EpochPlan, dealings: Sequence[Dealing], *, seed: int | None, is_start: bool
) -> np.ndarray:
    """Deal what is left of an epoch in the last of some ways; earlier ones dealt some steps.

    Args:
        seed: of the epoch; None without shuffling.
        is_start: whether training began with this epoch.

    Returns:
        int64[steps, world_size].

    Raises:
        ValueError: there are too few batches in the epoch, or fewer than were taken.
    """
    *taken, last = dealings
    rest = plan.order
    for dealing in taken:
        rest = dealing.leave(plan, rest, seed=seed, is_start=is_start)
        is_start = False
    steps = last.deal(plan, rest, seed=seed, is_start=is_start)
    if not len(steps) and not taken:
        counts = f"{len(plan.keys)} in the epoch, {len(last.options.skip)} of them skipped"
        raise ValueError(f"too few batches for {last.world_size} ranks: {counts}")
    return steps


def _leave_out(rest: np.ndarray, numbers: np.ndarray, plan: EpochPlan) -> np.ndarray:
    if not numbers.size:
        return rest
    is_out = np.zeros(len(plan.keys), bool)
    is_out[numbers] = True
    left: np.ndarray = rest[~is_out[rest]]
    return left


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
