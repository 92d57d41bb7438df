"""Compare the ways to pack a token store from its lengths, without packing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.batching.selection import SourceCounts
from seqpack_cli.reporting.pack_ways import list_ways, spell_options
from seqpack_cli.reporting.pair_plans import compare_pair_plans
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.pack_plan import count_bytes, plan_store
from seqpack_cli.shards.selection import Selection
from seqpack_cli.tokens.store import AnyPaths, TokenStore, open_stores, parse_places


@checks_arguments
def plan(
    stores: AnyPaths,
    *,
    decoder: AnyPaths | None = None,
    keep_without_target: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compare the ways to pack a token store, as `seqpack plan --json` prints them.

    Nothing is packed: only lengths and targets are read, and all ways together take 0.8 us per
    sequence, and 8 us per pair.

    Args:
        stores: the store's folder, or those of several, which are packed as one.
        decoder: of pairs, the store of the decoder's side, or one for each of stores.
        keep_without_target: as for `PackOptions`.

    Returns:
        Under "plans", for each way: the options of `seqpack pack`, the number of batches, the
        padding ratio and the bytes of the shards; where sequences share rows, also the fewest
        batches that could hold all tokens and the number of sequences that are split. Of pairs the
        padding ratio is that of both sides together, and `encoder` and `decoder` have their own.

    Raises:
        OptionError: several stores differ in tokenizer or columns, an option has no effect, or
            both sides do not have the same documents.
        DataError: no sequence has a target.
        FolderError: a store is incomplete, damaged or something else.
    """
    store = open_stores(parse_places(stores), wanted=())
    if decoder is None:
        return compare_plans(store, progress, keep_without_target=keep_without_target)
    other = open_stores(parse_places(decoder), wanted=())
    return compare_pair_plans(store, other, progress, keep_without_target=keep_without_target)


def compare_plans(
    store: TokenStore, progress: Progress | None = None, *, keep_without_target: bool = False
) -> dict[str, Any]:
    """Plan a store in many ways and return the numbers of each; 0.8 us per sequence for all.

    Raises:
        OptionError: the option has no effect.
        DataError: no sequence has a target.
    """
    progress = progress or Progress()
    source = Selection(store, PackOptions(keep_without_target=keep_without_target).resolve())
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
        "path": store.shown_path,
        "stores": [str(each.path) for each in store.folders],
        "num_sequences": kept.num_sequences,
        "num_tokens": kept.num_tokens,
        "num_sequences_without_target": len(store) - kept.num_sequences,  # which are not packed
        "longest": longest,
        "plans": plans,
    }


def _measure(source: Selection, counts: SourceCounts, way: PackOptions) -> dict[str, Any]:
    options = replace(way.resolve(), shuffle=False)  # the numbers are the same
    plan = plan_store(source, options, counts)
    table = plan.table
    num_bytes = count_bytes(table, options, source.sides)
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
        num_rows = -(-table.add_up(table.num_tokens) // options.row_length)
        measured["lower_bound_batches"] = -(-num_rows // (options.batch_size or 1))
        measured["num_split_sequences"] = table.add_up(table.num_split_sequences)
    return measured


def _longest(table: BatchTable, options: PackOptions) -> int:
    """Return the time steps, columns or cells in a row of the longest batch."""
    if options.shares_rows:
        return int((table.num_cells // (options.batch_size or 1)).max())
    return int((table.widths if options.fills_rectangle else table.longest).max())
