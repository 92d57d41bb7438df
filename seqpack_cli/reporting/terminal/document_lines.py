"""Show the documents that two stores, or two shard sets, both contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.reporting.wording import pair, pair_of_path

SIDES = {"a": "A", "b": "B"}


def show_documents(documents: Mapping[str, Any], *, with_examples: bool) -> list[str]:
    """Return how many documents of each side the other has too, and where some of them are.

    There is nothing to show if both sides contain the same texts.
    """
    if missing := documents["without_stores"]:
        sides = " and ".join(SIDES[side] for side in missing)
        return ["documents", pair("in both", f"unknown: token stores of {sides} not found")]
    if documents["has_other_hashes"]:
        return ["documents", pair("in both", "unknown: texts and imported ids are not compared")]
    lines = []
    num_shared = [documents[f"num_shared_in_{side}"] for side in SIDES]
    if num_shared != [documents[f"num_in_{side}"] for side in SIDES]:
        for side, other in ("ab", "ba"):
            numbers = (documents[f"num_in_{side}"], documents[f"num_shared_in_{side}"])
            text = f"{numbers[0]:,}, {numbers[1]:,} of them also in {SIDES[other]}"
            lines.append(pair(f"in {SIDES[side]}", text))
        lines += _show_examples(documents["examples"]) if with_examples else []
    if num_differing := documents.get("num_differing"):
        first = documents["first_differing"]
        lines.append(pair("differ", f"{num_differing:,}, the first is {first:,}"))
    return ["documents", *lines] if lines else []


def _show_examples(examples: list[dict[str, Any]]) -> list[str]:
    """Return the source and record of documents on both sides; the store if there are several."""
    stores = {example[side]["store"] for example in examples for side in SIDES}
    lines = []
    for number, example in enumerate(examples):
        if number == 0:
            lines.append("  in both, for example")
        for side, title in SIDES.items():
            origin = example[side]
            more = f", record {origin['record']:,}"
            lines.append(pair_of_path(f"  {title}", origin["source"], more))
            if len(stores) > 1:
                lines.append(pair_of_path("    of store", origin["store"]))
    return lines
