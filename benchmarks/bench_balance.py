"""How much time do the ranks of a step wait for each other, with each `balance` of SamplerOptions?

    python benchmarks/bench_balance.py [--ranks 64] [--sigma 1.0] [--sequences 2000000]

Lengths are random, log-normal around a mean (default 400 tokens, sigma 1), clipped to 1 .. 8192.
`pack`'s own planner makes the batches, shuffled; costs and dealing are those of an EpochSampler.

packed     64 rows as they come.
windows    64 packed rows of windows of 4,096 sequences.
padded     the same rows in rectangles.
budget     rectangles of at most 32,768 cells, of windows of 4,096 sequences.
varlen     rows of at most 8,192 tokens.

A step lasts as long as its most expensive batch. Its imbalance is the largest cost of its batches
divided by their mean, 1 if all are equal. Printed are, for tokens (cells) and for attention
(squared lengths), the mean over all steps, and in brackets the sum of the largest divided by the
sum of the means: the time of an epoch as a multiple of that without waiting. In "attention,
windows" all batches are sorted in windows; otherwise the most expensive 1/32 of the epoch's are
sorted together. The JSON document also has the microseconds per batch that it takes to count the
costs and to deal, median and spread.
Not measured: a model, whose time is a mixture of both costs, and reading lengths from shards.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from machine import describe_machine

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import plan_batches
from seqpack_cli.training import rank_steps
from seqpack_cli.training.batch_costs import COSTS, count_costs

LONGEST = 8192
WINDOW = {"window": 4096, "shuffle": True}
CASES = {
    "packed": PackOptions(batch_size=64, order="none", shuffle=True),
    "windows": PackOptions(batch_size=64, **WINDOW),
    "padded": PackOptions("padded", batch_size=64, **WINDOW),
    "budget": PackOptions("padded", max_tokens=32_768, **WINDOW),
    "varlen": PackOptions("varlen", max_tokens=LONGEST, shuffle=True),
}
WAYS = (None, "tokens", "attention, windows", "attention")
NO_TAIL = 1 << 40  # steps, of which one would be dealt over the whole epoch


class Lengths:
    """The lengths of a store that does not exist, in one part."""

    def __init__(self, num_sequences: int, mean: float, sigma: float) -> None:
        drawn = np.random.default_rng(0).lognormal(
            np.log(mean) - sigma**2 / 2, sigma, num_sequences
        )
        self.lengths = np.clip(drawn, 1, LONGEST).astype(np.int32)
        self.part_offsets = np.array([0, num_sequences])

    def part_lengths(self, _number: int) -> np.ndarray:
        """Return the lengths of the only part."""
        return self.lengths


@click.command()
@click.option("--sequences", default=2_000_000, show_default=True)
@click.option("--mean", default=400, show_default=True)
@click.option("--sigma", default=1.0, show_default=True)
@click.option("--ranks", default=64, show_default=True)
@click.option("--repeats", default=5, show_default=True)
def main(sequences: int, mean: int, sigma: float, ranks: int, repeats: int) -> None:
    """Print a table for each way to make batches, and one JSON document as the last line."""
    source = Lengths(sequences, mean, sigma)
    figures = {
        name: measure(name, source, options, ranks, repeats) for name, options in CASES.items()
    }
    given = {"sequences": sequences, "mean": mean, "sigma": sigma, "ranks": ranks}
    print(json.dumps({"figures": figures, **given, **describe_machine("numpy")}))


def measure(
    name: str, source: Lengths, options: PackOptions, ranks: int, repeats: int
) -> dict[str, Any]:
    """Deal the batches in all ways; print and return the imbalance of each and the time."""
    options = options.resolve()
    plan = plan_batches(source, options)
    table = plan.table.expand()
    (planned,) = plan.cut([0, plan.num_batches])
    rows, order = planned.find(source), np.arange(plan.num_batches)
    widths = table.widths if options.fills_rectangle else None

    def count(cost: str) -> np.ndarray:
        return count_costs(cost, table.num_cells, rows.lengths, rows.batch_offsets, widths)

    costs = {cost: count(cost) for cost in COSTS}
    figures: dict[str, Any] = {"batches": len(order), "steps": len(order) // ranks}
    print(f"\n{name}: {len(order):,} batches, {len(order) // ranks:,} steps of {ranks} ranks")
    for way in WAYS:
        chosen = None if way is None else costs[way.partition(",")[0]]

        def deal(chosen: np.ndarray | None = chosen) -> np.ndarray:
            return rank_steps.deal_steps(order, ranks, drop_last=True, costs=chosen, seed=0)

        with_tail = rank_steps.STEPS_PER_TAIL_STEP
        if way == "attention, windows":
            rank_steps.STEPS_PER_TAIL_STEP = NO_TAIL
        steps = deal()
        found = {cost: find_imbalance(costs[cost][steps]) for cost in COSTS}
        seconds = {"dealing": time_it(deal, repeats)}
        rank_steps.STEPS_PER_TAIL_STEP = with_tail
        if way in COSTS:
            seconds["counting"] = time_it(lambda way=way: count(way), repeats)
        per_batch = {task: scale(times, 1e6 / len(order)) for task, times in seconds.items()}
        figures[str(way)] = {**found, "microseconds_per_batch": per_batch}
        shown = "  ".join(
            f"{cost} {each['mean']:6.3f} ({each['time']:.3f})" for cost, each in found.items()
        )
        print(f"  {way!s:<20} {shown}   {per_batch['dealing']['median']:.2f} us a batch")
    return figures


def find_imbalance(costs: np.ndarray) -> dict[str, float]:
    """Return the largest cost of a step divided by the mean: over all steps, and of their sums."""
    largest, means = costs.max(axis=1), costs.mean(axis=1)
    return {
        "mean": round(float((largest / means).mean()), 4),
        "time": round(float(largest.sum() / means.sum()), 4),
    }


def time_it(run: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of some runs after a warm-up."""
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def scale(seconds: list[float], factor: float) -> dict[str, float]:
    """Return median and spread."""
    median = statistics.median(seconds)
    return {
        "median": round(median * factor, 3),
        "spread": round((max(seconds) - min(seconds)) / median, 3),
    }


if __name__ == "__main__":
    main()
