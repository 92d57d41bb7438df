"""The table of layouts: their names, and the rules that a plan for each must follow.

A new layout needs a line here and two modules in `shards/`: NAME, its batch, and NAME_layout, which
says where its tokens lie in a shard. The round trip of `verify` assumes that flat data without
shared rows is ordered by time steps; a layout with another order also needs a line in
`verification/integers/stacks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

ENCODER, DECODER = SIDES = ("encoder", "decoder")  # of pairs


@dataclass(frozen=True)
class LayoutRules:
    """The rules for the batches of a layout."""

    fills_rectangle: bool = False  # rows are padded to one width, and max_tokens counts all cells
    shares_rows: bool = False  # several sequences, or pieces of them, share a row
    needs_sorted_rows: bool = False  # longest first, so that each side of pairs has its own order
    holds_pairs: bool = False  # batches may have a decoder's side
    carries_state: bool = False  # rows go on in the next batch, so the order of batches is fixed


LAYOUTS = {
    "packed": LayoutRules(needs_sorted_rows=True, holds_pairs=True),
    "padded": LayoutRules(fills_rectangle=True, holds_pairs=True),
    "varlen": LayoutRules(shares_rows=True),
    "streams": LayoutRules(shares_rows=True, carries_state=True),
}
