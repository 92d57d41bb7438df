"""Slow plain-Python oracles for the order of an epoch, and batches that hold only numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from batching_reference import slow_shuffled

from seqpack_cli.batching.order import BATCHES, STEPS, epoch_seed, shuffled
from seqpack_cli.training.epoch_plan import EpochPlan


@dataclass
class NumberedBatches:
    """Batches with these costs; the key of a batch is its number plus FIRST_KEY."""

    cells: Sequence[int]
    fingerprint: str = "batches"
    is_fixed: bool = True
    num_planned: int = field(default=0, compare=False)

    FIRST_KEY = 1000  # so that a number used as a key is noticed

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        self.num_planned += 1
        num_batches = len(self.cells)
        order = np.arange(num_batches)
        if seed is not None:
            order = shuffled(num_batches, seed=seed, stream=BATCHES)
        keys = range(self.FIRST_KEY, self.FIRST_KEY + num_batches)
        return EpochPlan(keys, order, self.count_costs)

    def count_costs(self, cost: str) -> np.ndarray:
        """Return the cells, or for attention the same costs the other way round."""
        cells = np.array(self.cells, np.int64)
        return {"tokens": cells, "attention": cells.max() - cells}[cost]


@dataclass(frozen=True)
class Way:
    """How a run deals batches to ranks, and after how many steps it stops; None: at its end."""

    world_size: int = 1
    drop_last: bool = False
    repeat: bool = True
    balance: str | None = None
    longest_first: bool = False
    skip: tuple[int, ...] = ()
    num_steps: int | None = None


def slow_deal(
    order: Sequence[int],
    world_size: int,
    *,
    drop_last: bool = False,
    repeated: Sequence[int] | None = None,
    costs: Sequence[int] | None = None,
    seed: int | None = None,
) -> list[list[int]]:
    """Deal one batch after another, as `deal_steps` documents."""
    num_full = len(order) // world_size
    dealt, last = list(order[: num_full * world_size]), list(order[num_full * world_size :])
    if costs is not None:
        num_tail = num_full // 32
        dealt = slow_put_first(dealt, costs, num_tail * world_size)
        num_windows = max((num_full - num_tail) // 64, 1)
        sizes = [(num_full - num_tail) // num_windows] * num_windows
        for larger in range((num_full - num_tail) % num_windows):
            sizes[larger] += 1
        sizes.insert(0, num_tail)
        ends = [world_size * sum(sizes[: number + 1]) for number in range(len(sizes))]
        parts = [dealt[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        dealt = [n for part in parts for n in sorted(part, key=lambda number: -costs[number])]
    steps = [dealt[start : start + world_size] for start in range(0, len(dealt), world_size)]
    if costs is not None:
        if seed is not None:
            steps = [steps[place] for place in slow_shuffled(len(steps), seed=seed, stream=STEPS)]
        steps = [
            [step[(place + rank) % world_size] for rank in range(world_size)]
            for place, step in enumerate(steps)
        ]
    if last and not drop_last:
        first = list(order if repeated is None else repeated)
        steps.append((last + first * world_size)[:world_size])
    return steps


def slow_put_first(order: Sequence[int], costs: Sequence[int], num_first: int) -> list[int]:
    """Move the batches with the highest cost to the front; among equal ones, the first."""
    places = sorted(range(len(order)), key=lambda place: (-costs[order[place]], place))
    chosen = {order[place] for place in places[:num_first]}
    return [n for n in order if n in chosen] + [n for n in order if n not in chosen]


def slow_epoch(cells: Sequence[int], ways: Sequence[Way], *, seed: int, epoch: int) -> list[int]:
    """Return the batches of all ranks in an epoch of several runs, step by step.

    Returns:
        The numbers of the batches in one list; those of a step follow each other.
    """
    shuffle_seed = epoch_seed(seed, epoch)
    costs = {"tokens": cells, "attention": [max(cells) - cell for cell in cells]}
    whole = slow_shuffled(len(cells), seed=shuffle_seed, stream=BATCHES)
    rest = list(whole)
    taken: list[int] = []
    for way in ways:
        order = [number for number in rest if number not in way.skip]
        steps = []
        if way.longest_first and epoch == 0 and not taken and len(order) >= way.world_size:
            order = slow_put_first(order, cells, way.world_size)
            steps, order = [order[: way.world_size]], order[way.world_size :]
        steps += slow_deal(
            order,
            way.world_size,
            drop_last=way.drop_last,
            repeated=[number for number in whole if number not in way.skip],
            costs=costs[way.balance] if way.balance else None,
            seed=shuffle_seed,
        )
        if steps and not way.repeat:
            steps[-1] = steps[-1][: (len(order) - 1) % way.world_size + 1]
        given = [number for step in steps[: way.num_steps] for number in step]
        taken += given
        rest = [number for number in rest if number not in given]
    return taken
