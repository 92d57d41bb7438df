"""The batches of an epoch, dealt one after another, as docs/formats.md and docs/training.md say.

How `balance` deals is fixed too, since a state counts steps that were dealt in an earlier version:
windows of at least 64 steps are sorted by cost, and before them the most expensive 32nd of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.batches import PageBatch
from oracle.plan import permute

Costs = dict[str, list[int]]  # "tokens" and "attention" of each batch
OF_BATCHES, OF_STEPS = 1, 2  # purposes of permute


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


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of the plan of an epoch."""
    state = np.random.SeedSequence(seed, spawn_key=(3, epoch)).generate_state(1, np.uint64)
    return int(state[0])


def count_costs(pages: Sequence[PageBatch]) -> dict[str, int]:
    """Return what a batch costs, all its sides together."""
    squares = [
        len(page.arrays["data"]) * int(page.arrays["widths"][0])
        if "widths" in page.arrays
        else sum(length**2 for length in page.arrays["lengths"].tolist())
        for page in pages
    ]
    return {"tokens": sum(len(page.arrays["data"]) for page in pages), "attention": sum(squares)}


def put_first(order: Sequence[int], costs: Sequence[int], number: int) -> list[int]:
    """Move the batches that cost most to the front; among equal ones, the first."""
    places = sorted(range(len(order)), key=lambda place: (-costs[order[place]], place))
    chosen = {order[place] for place in places[:number]}
    return [n for n in order if n in chosen] + [n for n in order if n not in chosen]


def _balance(
    order: list[int], world_size: int, costs: Sequence[int], seed: int | None
) -> list[list[int]]:
    num_steps = len(order) // world_size
    num_tail = num_steps // 32
    order = put_first(order, costs, num_tail * world_size)
    num_windows = max((num_steps - num_tail) // 64, 1)
    sizes = [(num_steps - num_tail) // num_windows] * num_windows
    for larger in range((num_steps - num_tail) % num_windows):
        sizes[larger] += 1
    steps = []
    for size in (num_tail, *sizes):
        window, order = order[: size * world_size], order[size * world_size :]
        window.sort(key=lambda number: -costs[number])
        steps += [window[n : n + world_size] for n in range(0, len(window), world_size)]
    if seed is not None:
        steps = [steps[place] for place in permute(len(steps), seed, OF_STEPS)]
    return [
        [step[(place + rank) % world_size] for rank in range(world_size)]
        for place, step in enumerate(steps)
    ]


def _deal(
    order: list[int], whole: list[int], way: Way, costs: Costs, seed: int | None
) -> list[list[int]]:
    num_full = len(order) // way.world_size * way.world_size
    dealt, last = order[:num_full], order[num_full:]
    steps = [dealt[n : n + way.world_size] for n in range(0, num_full, way.world_size)]
    if way.balance:
        steps = _balance(dealt, way.world_size, costs[way.balance], seed)
    if last and not way.drop_last:
        if way.repeat:
            last = (last + whole * way.world_size)[: way.world_size]
        steps.append(last)
    return steps


def deal_epoch(
    ways: Sequence[Way], costs: Costs, seed: int | None, *, is_start: bool
) -> list[list[list[int]]]:
    """Return the steps of each run in an epoch: the batches of the ranks, fewer in a short one.

    Args:
        seed: of the epoch; None without shuffling.
        is_start: whether it is epoch 0.
    """
    number, runs = len(costs["tokens"]), list[list[list[int]]]()
    whole = [*range(number)] if seed is None else permute(number, seed, OF_BATCHES)
    rest, steps, before = list(whole), list[list[int]](), None
    for way in ways:
        if replace(way, num_steps=None) != before:  # else it goes on as if it had not stopped
            order, steps = [n for n in rest if n not in way.skip], []
            if way.longest_first and is_start and len(order) >= way.world_size:
                order = put_first(order, costs["tokens"], way.world_size)
                steps, order = [order[: way.world_size]], order[way.world_size :]
            kept = [n for n in whole if n not in way.skip]
            steps += _deal(order, kept, way, costs, seed)
        runs.append(steps[: way.num_steps])
        given = {n for step in runs[-1] for n in step}
        rest, is_start = [n for n in rest if n not in given], False
        steps, before = steps[len(runs[-1]) :], replace(way, num_steps=None)
    return runs
