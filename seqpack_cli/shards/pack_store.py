"""Pack one shard set: plan the batches of opened stores, write the shards, then the manifest.

The plan follows from the lengths and options alone, so shards are independent tasks: each maps the
stores, finds and gathers the rows of its batches, and publishes one file. The manifest's ledger
counts the dropped sequences by reason.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np

from seqpack_cli.batching.options import PLAN_VERSION, ResolvedOptions
from seqpack_cli.batching.plan import Plan, needs_array
from seqpack_cli.errors import quote
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.files.places import Place
from seqpack_cli.runs.run_folder import RunFolder, RunOutput, hold_folder
from seqpack_cli.runs.workers import Workers, count_cores
from seqpack_cli.shards.count_store import count_store
from seqpack_cli.shards.entry_bytes import EntryBytes
from seqpack_cli.shards.finished_manifest import describe_stores, make_manifest
from seqpack_cli.shards.manifest import (
    DECODER_COUNTS,
    FORMAT,
    FORMAT_VERSION,
    SHARD_FIELDS,
    counts_add_up,
    record_options,
)
from seqpack_cli.shards.pack_plan import (
    check_memory,
    choose_pad_id,
    cut_shards,
    describe_substitute_pad_id,
    plan_store,
)
from seqpack_cli.shards.pack_shard import ShardSetup, ShardTask, count_rows, make_shard
from seqpack_cli.shards.selection import SelectedStore
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.source_setup import SourceSetup
from seqpack_cli.tokens.store import TokenStore

TOKENIZERS = ("tokenizer.json", "decoder.tokenizer.json")


def plan_selected(source: SelectedStore, workers: Workers) -> Plan:
    """Plan the batches of what is selected of an opened store; raise if they cannot be packed."""
    counts = None
    if not is_planned_here(source.options, workers, pairs=len(source.sides) > 1):
        counts = count_store(source, SourceSetup.of(source), workers)
    plan = plan_store(source, source.options, counts)
    check_memory(plan.table, _count_entries(source))
    return plan


def pack_store(
    source: SelectedStore, workers: Workers, output: RunOutput, plan: Plan | None = None
) -> tuple[dict[str, Any], bool]:
    """Pack what is selected of an opened store, as `pack` does.

    Args:
        plan: from `plan_selected`, if it is known.
    """
    started, options = time.monotonic(), source.options
    head = _make_head(source)
    plan = plan_selected(source, workers) if plan is None else plan
    with hold_folder(output) as run:
        run.begin(head)
        if run.manifest is not None:
            run.check_whole(open_shards)
            return run.manifest, True
        if output.within is None:
            note_substitute_pad_ids(source, workers)
        for side, name in zip(source.sides, TOKENIZERS, strict=False):
            if has_tokenizer(side.manifest):
                run.write_tokenizer(side.read_tokenizer_json(), name)
        cuts = cut_shards(plan.table, options, _count_entries(source))
        tasks = [ShardTask(number, rows) for number, rows in enumerate(plan.cut(cuts))]
        setup = ShardSetup(run.path, SourceSetup.of(source), head)
        receipts = _make_shards(run, tasks, setup, workers)
        manifest = make_manifest(source, run.path, head, plan, receipts)
        seconds, sides = time.monotonic() - started, (manifest, manifest["decoder"])
        num_tokens = sum(side["ledger"]["num_tokens"] for side in sides if side is not None)
        done = describe_run(num_tokens, workers, seconds)
        run.write_record(done, {"numpy": np.__version__})
        run.finish(manifest, receipts)
    _note_unused_stores(source, manifest, workers)
    _note_unlabelled(plan, options, workers)
    return manifest, False


def _note_unlabelled(plan: Plan, options: ResolvedOptions, workers: Workers) -> None:
    """Tell the user of batches whose loss on the next token would be NaN: it has no label."""
    table = plan.table.sides[-1]  # of pairs the decoder's side
    number = table.add_up(table.longest == 1)
    if number and not options.carries_state:
        workers.progress.on_notice(
            f"{number:,} of {plan.num_batches:,} batches have no next-token label: their sequences "
            "have one token each; pass --drop-shorter 2"
        )


def _note_unused_stores(source: SelectedStore, manifest: dict[str, Any], workers: Workers) -> None:
    """Tell the user of stores of which nothing was packed."""
    for store, counts in zip(source.store.folders, manifest["ledger"]["stores"], strict=True):
        if not counts["num_sequences"]:
            split = source.options.split_name
            place = "" if split is None else f" into split {quote(split)}"
            workers.progress.on_notice(f"no sequence of {store.path} was packed{place}")


def is_planned_here(options: ResolvedOptions, workers: Workers, *, pairs: bool) -> bool:
    """Return whether this process reads all lengths, not the workers."""
    return workers.are_local or pairs or needs_array(options) or options.has_passes


def note_substitute_pad_ids(source: SelectedStore, workers: Workers) -> None:
    """Tell the user if padding is filled with an ordinary token."""
    for side in source.sides:
        note = describe_substitute_pad_id(side, source.options)
        if note is not None:
            workers.progress.on_notice(note)


def _count_entries(source: SelectedStore) -> list[EntryBytes]:
    """Return the bytes of the ids and columns of each side."""
    return [EntryBytes.of(side) for side in source.sides]


def _make_head(source: SelectedStore) -> dict[str, Any]:
    """Return the manifest's fields that are known before packing; a continued run must match."""
    options, (store, *others) = source.options, source.sides
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "plan_version": PLAN_VERSION,
        "layout": options.layout,
        "padding_side": options.padding_side,
        **_describe_side(store, source),
        "options": record_options(options),
        "decoder": _describe_side(others[0], source) if others else None,
    }


def _describe_side(store: TokenStore, source: SelectedStore) -> dict[str, Any]:
    return {
        "dtype": store.dtype,
        "pad_id": choose_pad_id(store, source.options),
        "tokenizer_blake3": store.manifest["tokenizer_blake3"],
        "stores": describe_stores(store, source.passes),
        "columns": [column.describe() for column in store.columns.values()],
    }


def _make_shards(
    run: RunFolder, tasks: list[ShardTask], setup: ShardSetup, workers: Workers
) -> list[dict[str, Any]]:
    """Make the shards that are not finished yet; return the receipts of all in order."""
    named = {Path(str(task)).stem: task for task in tasks}
    num_stores = len(setup.opened.places)
    found = run.read_receipts(
        named, SHARD_FIELDS, functools.partial(_check_receipt, run.path, num_stores)
    )
    receipts = dict(enumerate(found))
    waiting = [task for task in tasks if receipts[task.number] is None]
    if len(waiting) < len(tasks):
        name = setup.opened.options.split_name
        place = "" if name is None else f"split {quote(name)}: "
        workers.progress.on_notice(
            f"{place}{len(tasks) - len(waiting)} of {len(tasks)} shards were finished before"
        )
    for number, receipt in workers.run(functools.partial(make_shard, setup), waiting):
        receipts[number] = receipt
    return [receipt for receipt in receipts.values() if receipt is not None]


def _check_receipt(
    folder: Place, num_stores: int, task: ShardTask, receipt: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the receipt of a finished shard; None if it does not match the plan."""
    if receipt["name"] != str(task):
        return None
    sides = [receipt] if receipt["decoder"] is None else [receipt, receipt["decoder"]]
    expected = count_rows(task)
    if len(sides) != len(expected) or not set(sides[-1]).issuperset(DECODER_COUNTS):
        return None
    for side, counts in zip(sides, expected, strict=True):
        is_planned = all(side[name] == value for name, value in counts.items())
        if not is_planned or not counts_add_up(side, num_stores, folder):
            return None
    return {name: receipt[name] for name in SHARD_FIELDS}


def describe_run(num_tokens: int, workers: Workers, seconds: float) -> dict[str, Any]:
    """Return how a run was done, for `run.json`."""
    return {
        "executor": workers.executor.name,
        "num_workers": workers.executor.num_workers
        or (count_cores() if workers.are_local else None),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(num_tokens / seconds),
    }
