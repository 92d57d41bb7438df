"""How long does it take to plan a billion sequences, and to find the rows of one task?

    python benchmarks/bench_plan.py [--sequences 1e9] [--case length] …

Lengths are random, log-normal around 400 tokens (sigma 0.8), clipped to 1 .. 2048. Each part of a
million sequences is drawn again whenever it is read, so that nothing of the store's length is kept.
The time to draw is measured and subtracted: a real store reads lengths from files, 4 bytes each.
Each case runs in its own process and reports seconds and peak memory, first of the plan with the
shards and all tasks, then of one task in the middle that finds its rows.

length     the default: batches of 64, sorted by length over all sequences.
budget     the same in padded batches of 32,768 cells.
windows    windows of 4,096 sequences, batches of 64.
whole      shuffled, which needs the lengths of all sequences at once; at most 1e8.

If `whole` runs too, `length` must make as many batches.
Not measured: reading indices from a disk or an object store, laying out shards.
"""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from machine import describe_machine

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import plan_batches
from seqpack_cli.shards.pack_plan import check_memory, count_bytes, cut_shards

ROWS_PER_PART = 1_000_000
MEAN, SPREAD, LONGEST = 400, 0.8, 2048
NUM_DRAWN = 1 << 20  # a table of lengths, indexed by random bits: 1 ns per length
MOST_WHOLE = 100_000_000
SIDES: Any = [SimpleNamespace(dtype="uint16", columns={})]  # uint16
CASES = {
    "length": PackOptions(),
    "budget": PackOptions("padded", max_tokens=32_768),
    "windows": PackOptions(window=4096),
    "whole": PackOptions(shuffle=True),
}


class DrawnLengths:
    """The lengths of a store that does not exist: each part is drawn when it is read."""

    def __init__(self, num_sequences: int) -> None:
        bounds = [*range(0, num_sequences, ROWS_PER_PART), num_sequences]
        self.part_offsets = np.array(bounds)
        self.seconds = 0.0  # of drawing
        normal = np.random.default_rng(0).standard_normal(NUM_DRAWN)
        lengths = np.exp(normal * SPREAD + np.log(MEAN) - SPREAD**2 / 2)
        self._table = np.clip(lengths, 1, LONGEST).astype(np.int32)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Draw the lengths of all parts."""
        parts = range(len(self.part_offsets) - 1)
        return np.concatenate([self.part_lengths(number) for number in parts])

    def part_lengths(self, number: int) -> np.ndarray:
        """Draw the lengths of one part, the same every time."""
        started = time.perf_counter()
        num_rows = int(self.part_offsets[number + 1] - self.part_offsets[number])
        bits = np.random.PCG64(number).random_raw(-(-num_rows // 2)).view(np.uint32)[:num_rows]
        lengths = self._table[bits % np.uint32(NUM_DRAWN)]
        self.seconds += time.perf_counter() - started
        return lengths


@click.command()
@click.option("--sequences", default="1e9")
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)))
@click.option("--alone", hidden=True)
def main(sequences: str, cases: tuple[str, ...], alone: str | None) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    num_sequences = int(float(sequences))
    if alone is not None:
        print(json.dumps(measure(num_sequences, alone)))
        return
    figures: dict[str, Any] = {}
    for case in cases or CASES:
        if case == "whole" and num_sequences > MOST_WHOLE:
            print(f"  {case}: skipped, more than {MOST_WHOLE:,} sequences")
            continue
        command = [sys.executable, __file__, "--sequences", sequences, "--alone", case]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures[case] = json.loads(output)
        print(f"  {case}: {figures[case]}", flush=True)
    if {"length", "whole"} <= figures.keys():
        assert figures["length"]["batches"] == figures["whole"]["batches"]
    described = describe_machine("numpy")
    print(json.dumps({"figures": figures, "sequences": num_sequences, **described}))


def measure(num_sequences: int, case: str) -> dict[str, Any]:
    """Measure the plan, and one task in the middle that finds its rows."""
    options, source = CASES[case].resolve(), DrawnLengths(num_sequences)
    if case == "whole":
        assert len(source.lengths)  # drawn once for all
        source.seconds = 0.0
    seconds, (plan, tasks) = timed(lambda: make_tasks(source, options))
    found = {
        "seconds": round(seconds - source.seconds, 3),
        "seconds_of_drawing": round(source.seconds, 2),
        "peak_megabytes": read_peak(),
        "batches": plan.num_batches,
        "shards": len(tasks),
        "entries": len(plan.table),
    }
    rows, drawn_before = tasks[len(tasks) // 2], source.seconds
    seconds, shard_rows = timed(lambda: rows.find(source))
    return {
        **found,
        "seconds_to_find_rows": round(seconds - (source.seconds - drawn_before), 2),
        "rows_of_the_task": len(shard_rows.indices),
        "peak_megabytes_after": read_peak(),
    }


def make_tasks(source: DrawnLengths, options: PackOptions) -> tuple[Any, Any]:
    """Plan, and cut the plan into shards, as the pack run does."""
    plan = plan_batches(source, options)
    sizes = count_bytes(plan.table, options, SIDES)
    check_memory(plan.table, sizes)
    return plan, plan.cut(cut_shards(plan.table, sizes, options.shard_bytes))


def read_peak() -> int:
    """Return the peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
