"""The layouts by name, and what each asks of the plan: the one table that names them.

A layout is a line here and a module of the same name in `shards/`, which says where its tokens lie.
The round trip of `verify` takes flat batches whose rows are not shared for time steps: a layout
that lies otherwise needs a line in `verification/integers/stacks.py` too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayoutRules:
    """What a layout asks of the batches that are planned for it."""

    fills_rectangle: bool = False  # rows are padded to one width, and a budget counts all cells
    shares_rows: bool = False  # a batch is one row of several sequences, which are put into bins


LAYOUTS = {
    "packed": LayoutRules(),
    "padded": LayoutRules(fills_rectangle=True),
    "varlen": LayoutRules(shares_rows=True),
}
