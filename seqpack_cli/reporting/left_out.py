"""The sequences or pairs that were left out or packed several times, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqpack_cli.batching.selection import EMPTY, NO_TARGET, OTHER_SPLITS, OVERFLOW, PASSES
from seqpack_cli.reporting.wording import count, show_share

SEQUENCE, PAIR = "sequence", "pair"  # what a ledger counts


def list_not_packed(
    ledger: Mapping[str, Any], options: Mapping[str, Any], *, noun: str = SEQUENCE
) -> list[tuple[str, str]]:
    """Return the reasons for which sequences or pairs were not packed, with counts and words.

    The share is that of all tokens, without those of other splits.

    Args:
        ledger: of a side; for pairs what `add_up_sides` returns.
        options: those recorded in the manifest of the shards.
    """
    num_tokens = ledger["num_dropped_tokens"]
    total = ledger["num_tokens"] - ledger.get("num_repeated_tokens", 0) + sum(num_tokens.values())
    total -= num_tokens.get(OTHER_SPLITS, 0)
    return [
        (
            reason,
            f"{count_both(num, num_tokens[reason], noun=noun)}"
            + ("" if reason == OTHER_SPLITS else f" ({show_share(num_tokens[reason] / total)})")
            + f" {_spell_reason(reason, options, noun)}",
        )
        for reason, num in ledger[f"num_dropped_{noun}s"].items()
        if num
    ]


def list_repeated(
    ledger: Mapping[str, Any], options: Mapping[str, Any], *, noun: str = SEQUENCE
) -> list[tuple[str, str]]:
    """Return the visits beyond the first as "repeated" with their counts, if there are any."""
    number = ledger[f"num_repeated_{noun}s"]
    if not number:
        return []
    counts = count_both(number, ledger["num_repeated_tokens"], noun=noun)
    return [("repeated", f"{counts} by {_name_passes(options)}")]


def count_both(number: int, num_tokens: int, *, noun: str = SEQUENCE) -> str:
    """Return a number of sequences or pairs, and that of their tokens."""
    return f"{count(number, noun)}, {count(num_tokens, 'token')}"


def _name_passes(options: Mapping[str, Any]) -> str:
    return "--passes" if options["share"] is None else "--share"


def _spell_reason(reason: str, options: Mapping[str, Any], noun: str) -> str:
    """Return why something was left out.

    >>> _spell_reason("decoder.empty", {}, "pair")
    "with no sequence on the decoder's side"
    >>> _spell_reason("encoder.drop_longer", {}, "pair")
    'dropped by --drop-longer (encoder)'
    """
    if reason == OTHER_SPLITS:
        return "in other splits"
    if reason == PASSES:
        return f"left out by {_name_passes(options)}"
    if reason == NO_TARGET:
        return "dropped: no target"
    side, _, rule = reason.rpartition(".")
    if rule == EMPTY:
        return f"with no sequence on the {side}'s side"
    if reason == OVERFLOW and noun == PAIR:
        side = "both sides"
    return f"dropped by --{rule.replace('_', '-')}" + (f" ({side})" if side else "")
