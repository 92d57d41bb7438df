"""What both sides of pairs have together: tokens, padding, and the pairs that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def add_up_sides(ledgers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of pairs, with the tokens and cells of both sides.

    A pair that was left out counts once, also where one of its sides has no sequence.

    Args:
        ledgers: of the encoder's and the decoder's side.
    """
    totals = {
        name: sum(ledger[name] for ledger in ledgers)
        for name in ("num_tokens", "num_padding_cells", "num_repeated_tokens")
    }
    dropped, tokens = (
        [ledger[f"num_dropped_{noun}"] for ledger in ledgers] for noun in ("sequences", "tokens")
    )
    reasons = dict.fromkeys(reason for side in dropped for reason in side)
    num_cells = totals["num_tokens"] + totals["num_padding_cells"]
    return {
        "num_pairs": ledgers[0]["num_sequences"],
        **totals,
        "padding_ratio": round(totals["num_padding_cells"] / max(num_cells, 1), 6),
        "num_dropped_pairs": {
            reason: max(side.get(reason, 0) for side in dropped) for reason in reasons
        },
        "num_dropped_tokens": {
            reason: sum(side.get(reason, 0) for side in tokens) for reason in reasons
        },
        "num_repeated_pairs": ledgers[0]["num_repeated_sequences"],
    }
