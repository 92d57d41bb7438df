"""Compare the ways to pack the pairs of two aligned token stores, without packing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.options import SIDES, PackOptions
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.batching.selection import SourceCounts
from seqpack_cli.reporting.pack_ways import list_pair_ways, spell_options
from seqpack_cli.reporting.pair_counts import add_up_sides
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.alignment import align
from seqpack_cli.shards.pack_plan import count_bytes, plan_store
from seqpack_cli.shards.selection import Selection
from seqpack_cli.tokens.store import TokenStore


def compare_pair_plans(
    encoder: TokenStore,
    decoder: TokenStore,
    progress: Progress | None = None,
    *,
    keep_without_target: bool = False,
) -> dict[str, Any]:
    """Plan the pairs of aligned stores in many ways and return the numbers of each.

    Takes 8 us per pair for all ways.

    Raises:
        OptionError: they do not have the same documents, or the option has no effect.
        DataError: no pair is left.
    """
    progress = progress or Progress()
    options = PackOptions(keep_without_target=keep_without_target).resolve(pairs=True)
    source = Selection(encoder, options, alignment=align(encoder, decoder))
    counts = source.count()
    # One pair in each batch: its tokens are those of both sides.
    singles = plan_store(source, replace(options, batch_size=1), counts)
    sides = singles.table.sides
    longest = int(np.add(*(side.num_tokens for side in sides)).max())
    ways = list_pair_ways(longest)
    progress.on_total(len(ways))
    plans = []
    for way in ways:
        plans.append(_measure(source, counts, way))
        progress.on_advance(1)
    both = add_up_sides(list(map(_count, sides, singles.counts)))
    names = ("num_pairs", "num_tokens", "num_dropped_pairs", "num_dropped_tokens")
    return {
        "kind": "plans",
        "path": " + ".join(store.shown_path for store in (encoder, decoder)),
        "stores": [str(each.path) for each in encoder.folders],
        "decoder_stores": [str(each.path) for each in decoder.folders],
        **{name: both[name] for name in names},
        "longest": [int(side.longest.max()) for side in sides],
        "plans": plans,
    }


def _count(table: BatchTable, counts: SourceCounts) -> dict[str, Any]:
    """Return the counts of a side as a ledger has them."""
    return {
        "num_sequences": table.add_up(table.num_rows),
        "num_tokens": table.add_up(table.num_tokens),
        "num_padding_cells": 0,
        **counts.describe(),
    }


def _measure(source: Selection, counts: SourceCounts, way: PackOptions) -> dict[str, Any]:
    """Return the numbers of one way."""
    options = way.resolve(pairs=True)
    plan = plan_store(source, options, counts)
    table, sides = plan.table, plan.table.sides
    num_bytes = count_bytes(table, options, source.sides)
    measured: dict[str, Any] = {
        "options": spell_options(way),
        "num_batches": table.num_batches,
        "padding_ratio": _find_padding_ratio(sides),
        "bytes": table.add_up(num_bytes),
        "most_cells": int(np.add(*(side.num_cells for side in sides)).max()),
        "bucket_keys": plan.bucket_keys,
    }
    for name, side in zip(SIDES, sides, strict=True):
        measured[name] = {"padding_ratio": _find_padding_ratio([side])}
    return measured


def _find_padding_ratio(sides: Sequence[BatchTable]) -> float:
    """Return the share of padding in the cells of some sides together."""
    num_tokens = sum(side.add_up(side.num_tokens) for side in sides)
    num_cells = sum(side.add_up(side.num_cells) for side in sides)
    return round(1 - num_tokens / max(num_cells, 1), 6)
