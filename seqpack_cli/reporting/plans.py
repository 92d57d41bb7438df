"""Compare the ways to pack a token store from its lengths, without packing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.batching.length_counts import SourceCounts
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.errors import MAX_COUNT, OptionError
from seqpack_cli.reporting.opened import AnyOpened, open_any_as_one
from seqpack_cli.runs.arguments import checks_arguments
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.entry_bytes import EntryBytes
from seqpack_cli.shards.pack_plan import count_bytes, plan_store
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.open_store import AnyPaths

BATCH_SIZES = (32, 64, 128)
USUAL_BATCH_SIZE = 64
NUM_BUCKETS = (4, 8, 16)
LEAST_BUDGET = 16_384  # tokens of a batch; more if the longest sequence needs it
ROW_LENGTHS = (2048, 4096, 8192)
SPELLED = (
    "layout",
    "batch_size",
    "max_tokens",
    "order",
    "buckets",
    "num_buckets",
    "fill",
    "align_sequences",
)
NUM_ROWS = 8  # of a varlen batch that is filled up
MULTIPLE = 16  # 2 x 8 ranks of context parallelism
NUM_STEPS = 128  # of a batch of streams


@checks_arguments
def plan(
    stores: AnyPaths, *, keep_without_target: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Compare the ways to pack a token store, as `seqpack plan --json` prints them.

    Nothing is packed: only lengths and targets are read, and all ways together take 0.8 us per
    sequence.

    Args:
        stores: the store's folder, or those of several, which are packed as one.
        keep_without_target: as for `PackOptions`.

    Returns:
        Under "plans", for each way: the options of `seqpack pack`, the number of batches, the
        padding ratio and the bytes of the shards; where sequences share rows, also the fewest
        batches that could hold all tokens and the number of sequences that are split.

    Raises:
        OptionError: these are shards, several stores differ in tokenizer or columns, or an option
            has no effect.
        DataError: no sequence has a target.
        FolderError: a store is incomplete or damaged.
    """
    opened = open_any_as_one(stores)
    return compare_plans(opened, progress, keep_without_target=keep_without_target)


def compare_plans(
    opened: AnyOpened, progress: Progress | None = None, *, keep_without_target: bool = False
) -> dict[str, Any]:
    """Plan a store in many ways and return the numbers of each; 0.8 us per sequence for all.

    Raises:
        OptionError: these are shards, or the option has no effect.
        DataError: no sequence has a target.
    """
    if isinstance(opened, ShardSet):
        raise OptionError(
            f"{opened.path}: shards are packed already", hint="name their token store"
        )
    progress = progress or Progress()
    source = SelectedStore(opened, PackOptions(keep_without_target=keep_without_target))
    counts = source.count()
    kept = counts.kept
    longest = int(kept.lengths.max(initial=1))
    ways = list_ways(longest)
    progress.on_total(len(ways))
    plans = []
    for way in ways:
        plans.append(_measure(source, counts, way))
        progress.on_advance(1)
    return {
        "kind": "plans",
        "path": opened.shown_path,
        "stores": [str(store.path) for store in opened.stores],
        "num_sequences": kept.num_sequences,
        "num_tokens": kept.num_tokens,
        "num_sequences_without_target": len(opened) - kept.num_sequences,  # which are not packed
        "longest": longest,
        "plans": plans,
    }


def list_ways(longest: int) -> list[PackOptions]:
    """Return the ways to compare: layouts x batch sizes or budgets x bucket sets or fills."""
    budget = min(max(LEAST_BUDGET, 1 << (longest - 1).bit_length()), MAX_COUNT)
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


def _measure(source: SelectedStore, counts: SourceCounts, way: PackOptions) -> dict[str, Any]:
    options = replace(way.resolve(), shuffle=False)  # the numbers are the same
    plan = plan_store(source, options, counts)
    table = plan.table
    num_bytes = count_bytes(table, options, [EntryBytes.of(side) for side in source.sides])
    measured = {
        "options": spell_options(way),
        "num_batches": table.num_batches,
        "padding_ratio": round(table.padding_ratio, 6),
        "bytes": table.add_up(num_bytes),
        "most_cells": int(table.num_cells.max()),
        "longest": _longest(table, options),
        "bucket_keys": plan.bucket_keys,
    }
    if options.shares_rows:
        assert options.max_tokens is not None  # noqa: S101 - resolved
        num_rows = -(-table.add_up(table.num_tokens) // options.max_tokens)
        measured["lower_bound_batches"] = -(-num_rows // (options.batch_size or 1))
        measured["num_split_sequences"] = table.add_up(table.num_split_sequences)
    return measured


def _longest(table: BatchTable, options: PackOptions) -> int:
    """Return the time steps, columns or cells in a row of the longest batch."""
    if options.shares_rows:
        return int((table.num_cells // (options.batch_size or 1)).max())
    return int((table.widths if options.fills_rectangle else table.longest).max())
