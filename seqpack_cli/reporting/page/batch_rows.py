"""The table of batches of the page: those with the most padding, and others evenly spread."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS, LayoutRules
from seqpack_cli.reporting.contents import has_one_row, measure_batches
from seqpack_cli.reporting.opened import Opened
from seqpack_cli.reporting.target_counts import count_targets_of_batches
from seqpack_cli.reporting.wording import show_share
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS

MAX_BATCHES = 500
MAX_WORST = 20  # batches that are added to those


def describe_batches(opened: Opened) -> dict[str, Any]:
    """Return the table of batches: MAX_BATCHES evenly spread, and those with the most padding."""
    if not isinstance(opened, ShardSet):
        return {"batches": [], "num_batches": 0, "columns": [], "worst_name": ""}
    sides = opened.sides
    numbers, is_room = [measure_batches(side) for side in sides], has_one_row(opened)
    rules = LAYOUTS[opened.layout]
    cells_name, share_name, worst_name = _name_columns(rules, is_room=is_room)
    tokens, cells = (
        np.add.reduce([getattr(side, name) for side in numbers])
        for name in ("num_tokens", "num_cells")
    )
    shares = 1 - tokens / np.maximum(cells, 1)
    spread = np.linspace(0, len(opened) - 1, min(len(opened), MAX_BATCHES)).round().astype(int)
    worst = np.argsort(-shares, kind="stable")[:MAX_WORST]
    shown = np.union1d(spread, worst)
    if is_room:
        shares = 1 - shares
    columns = {
        "batch": np.arange(len(opened)),
        "sequences" if rules.shares_rows else "rows": numbers[0].num_rows,
    }
    for side, table in zip(sides, numbers, strict=True):
        prefix = f"{side.side}: " if len(sides) > 1 else ""
        columns[f"{prefix}longest"] = table.longest
        columns[f"{prefix}tokens"] = table.num_tokens
        if TARGETS in side.columns:
            columns[f"{prefix}targets"] = count_targets_of_batches(side)
        columns[f"{prefix}{cells_name}"] = table.num_cells
    return {
        "num_batches": len(opened),
        "columns": [*columns, share_name],
        "worst_name": worst_name,
        "batches": [
            {
                "cells": [(value, f"{value:,}") for value in values],
                "share": round(share, 6),
                "share_text": show_share(share),
                "width": f"{share:.1%}",
            }
            for *values, share in zip(
                *(column[shown].tolist() for column in columns.values()),
                shares[shown].tolist(),
                strict=True,
            )
        ],
    }


def _name_columns(rules: LayoutRules, *, is_room: bool) -> tuple[str, str, str]:
    """Return the names of the columns of cells and of their share, and of the worst batches."""
    if is_room:
        return "room", "filled", "least filled ones"
    if rules.fills_rectangle or rules.shares_rows:
        return "cells", "padding", "ones with the most padding"
    return "cells if padded", "padding if padded", "ones that would have the most padding"
