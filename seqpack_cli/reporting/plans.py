"""The lengths of a token store -> what each way to pack it would cost, without packing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan
from seqpack_cli.batching.pack_options import MAX_COUNT, PackOptions
from seqpack_cli.errors import OptionError
from seqpack_cli.reporting.opened import Opened
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.pack_plan import count_bytes, count_cells, make_plan
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.token_store import TokenStore

BATCH_SIZES = (32, 64, 128)
USUAL_BATCH_SIZE = 64
NUM_BUCKETS = (4, 8, 16)
LEAST_BUDGET = 16_384  # tokens of a batch, or the next power of two that holds the longest
ROW_LENGTHS = (2048, 4096, 8192)


def compare_plans(opened: Opened, progress: Progress | None = None) -> dict[str, Any]:
    """Plan a store in many ways and give the numbers of each, about 0.3 us a sequence and way.

    Raises:
        OptionError: these are shards.
    """
    if isinstance(opened, ShardSet):
        raise OptionError(
            f"{opened.path}: shards are packed already", hint="name their token store"
        )
    progress = progress or Progress()
    ways = list_ways(int(opened.lengths.max()))
    progress.on_total(len(ways))
    plans = []
    for way in ways:
        plans.append(_measure(opened, way))
        progress.on_advance(1)
    return {
        "kind": "plans",
        "path": str(opened.path),
        "num_sequences": len(opened),
        "num_tokens": opened.num_tokens,
        "longest": int(opened.lengths.max()),
        "plans": plans,
    }


def list_ways(longest: int) -> list[PackOptions]:
    """Give the ways to compare: layouts x batch sizes or budgets x bucket sets."""
    budget = min(max(LEAST_BUDGET, 1 << (longest - 1).bit_length()), MAX_COUNT)
    ways = [PackOptions(batch_size=size) for size in BATCH_SIZES]
    ways.append(PackOptions(max_tokens=budget))
    ways.append(PackOptions("padded", batch_size=USUAL_BATCH_SIZE, order="none"))
    padded = [PackOptions("padded", batch_size=size) for size in BATCH_SIZES]
    padded.append(PackOptions("padded", max_tokens=budget))
    for way in padded:
        ways.append(way)
        usual = way.batch_size == USUAL_BATCH_SIZE  # beside which more bucket sets are compared
        for number in NUM_BUCKETS if usual else NUM_BUCKETS[1:2]:
            ways.append(replace(way, buckets="auto", num_buckets=number))
    ways += [PackOptions("varlen", max_tokens=length) for length in ROW_LENGTHS]
    ways.append(PackOptions("varlen", max_tokens=ROW_LENGTHS[0], packing="sequential"))
    return ways


def spell_options(options: PackOptions) -> str:
    """Spell the options of `seqpack pack` that differ from its own choice.

    >>> spell_options(PackOptions("padded", batch_size=32, buckets="auto", num_buckets=4))
    '--layout padded --batch-size 32 --buckets auto --num-buckets 4'
    """
    default = PackOptions()
    names = ("layout", "batch_size", "max_tokens", "order", "buckets", "num_buckets", "packing")
    return " ".join(
        f"--{name.replace('_', '-')} {getattr(options, name)}"
        for name in names
        if name == "layout" or getattr(options, name) != getattr(default, name)
    )


def _measure(store: TokenStore, way: PackOptions) -> dict[str, Any]:
    options = way.resolve()
    plan = make_plan(store.lengths, options)
    cells = count_cells(plan, options.layout)
    num_cells, num_tokens = int(cells.sum()), int(plan.lengths.sum(dtype=np.int64))
    measured = {
        "options": spell_options(way),
        "num_batches": plan.num_batches,
        "padding_ratio": round(1 - num_tokens / num_cells, 6),
        "bytes": int(count_bytes(plan, options, np.dtype(store.dtype).itemsize).sum()),
        "most_cells": int(cells.max()),
        "longest": _longest(plan, options.layout),
        "bucket_keys": plan.bucket_keys,
    }
    if options.layout == "varlen":
        assert options.max_tokens is not None  # noqa: S101 - varlen has it
        measured["lower_bound_batches"] = -(-num_tokens // options.max_tokens)
    return measured


def _longest(plan: BatchPlan, layout: str) -> int:
    """Give the time steps, columns or tokens in a row of the longest batch."""
    return int(plan.lengths.max() if layout == "packed" else plan.widths.max())
