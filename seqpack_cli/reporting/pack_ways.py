"""The ways to pack that `plan` compares, and their options as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqpack_cli.batching.options import LAYOUTS, PackOptions
from seqpack_cli.errors import MAX_COUNT

BATCH_SIZES = (32, 64, 128)
USUAL_BATCH_SIZE = 64
NUM_BUCKETS = (4, 8, 16)
LEAST_BUDGET = 16_384  # tokens of a batch; more if the longest sequence needs it
ROW_LENGTHS = (2048, 4096, 8192)
SPELLED = (
    "layout",
    "batch_size",
    "max_tokens",
    "count",
    "order",
    "buckets",
    "num_buckets",
    "fill",
    "align_sequences",
)
NUM_ROWS = 8  # of a varlen batch that is filled up
MULTIPLE = 16  # 2 x 8 ranks of context parallelism
NUM_STEPS = 128  # of a batch of streams


def list_ways(longest: int) -> list[PackOptions]:
    """Return the ways to compare: layouts x batch sizes or budgets x bucket sets or fills."""
    budget = _choose_budget(longest)
    ways = [PackOptions(batch_size=size) for size in BATCH_SIZES]
    ways.append(PackOptions(max_tokens=budget))
    ways.append(PackOptions("padded", batch_size=USUAL_BATCH_SIZE, order="none"))
    padded = [PackOptions("padded", batch_size=size) for size in BATCH_SIZES]
    padded.append(PackOptions("padded", max_tokens=budget))
    for way in padded:
        ways.append(way)
        usual = way.batch_size == USUAL_BATCH_SIZE  # for which more bucket sets are compared
        for number in NUM_BUCKETS if usual else NUM_BUCKETS[1:2]:
            ways.append(replace(way, buckets="auto", num_buckets=number))
    ways += [PackOptions("varlen", max_tokens=length) for length in ROW_LENGTHS]
    short = PackOptions("varlen", max_tokens=ROW_LENGTHS[0])
    ways += [replace(short, fill="sequential"), replace(short, fill="chunk")]
    ways += [replace(short, batch_size=NUM_ROWS), replace(short, align_sequences=MULTIPLE)]
    ways.append(PackOptions("streams", batch_size=USUAL_BATCH_SIZE, max_tokens=NUM_STEPS))
    return ways


def list_pair_ways(longest: int) -> list[PackOptions]:
    """Return the ways to compare for pairs: layouts x batch sizes or budgets.

    Args:
        longest: tokens of both sides of the longest pair.
    """
    budget = _choose_budget(longest)
    ways = [PackOptions(batch_size=size) for size in BATCH_SIZES]
    ways += [PackOptions(max_tokens=budget, count=count) for count in ("max", "sum")]
    ways.append(PackOptions("padded", batch_size=USUAL_BATCH_SIZE, order="none"))
    padded = [PackOptions("padded", batch_size=size) for size in BATCH_SIZES]
    padded += [PackOptions("padded", max_tokens=budget, count=count) for count in ("max", "sum")]
    return ways + padded


def spell_options(options: PackOptions) -> str:
    """Return the options of `seqpack pack` that differ from the defaults.

    >>> spell_options(PackOptions("padded", batch_size=32, buckets="auto", num_buckets=4))
    '--layout padded --batch-size 32 --buckets auto --num-buckets 4'
    """
    default = PackOptions()
    return " ".join(
        f"--{name.replace('_', '-')} {getattr(options, name)}"
        for name in SPELLED
        if name == "layout" or getattr(options, name) != getattr(default, name)
    )


def read_options(plan: dict[str, Any]) -> dict[str, str]:
    """Return the options of a way as names and values."""
    words = plan["options"].split()
    return {
        name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }


def find_best(plans: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the padded way with the least padding; of several, the one with the fewest batches."""
    padded = [plan for plan in plans if LAYOUTS[read_options(plan)["layout"]].fills_rectangle]
    return min(padded, key=lambda plan: (plan["padding_ratio"], plan["num_batches"]))


def _choose_budget(longest: int) -> int:
    """Return a budget of tokens that holds every sequence or pair."""
    return min(max(LEAST_BUDGET, 1 << (longest - 1).bit_length()), MAX_COUNT)
