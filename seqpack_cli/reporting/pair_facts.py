"""The numbers of shards of pairs as labels and values: of both sides together, and of each."""

from __future__ import annotations

from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER
from seqpack_cli.reporting.batch_facts import list_batches, spell_keys, spell_padding
from seqpack_cli.reporting.facts import (
    NOT_PACKED,
    SHARDS_LEDGER,
    Facts,
    list_facts,
    list_length_facts,
    list_nonzero,
    list_store_facts,
    list_target_facts,
    spell_vocabulary,
    tell_tokenizer,
)
from seqpack_cli.reporting.left_out import PAIR, list_not_packed, list_repeated
from seqpack_cli.reporting.wording import count, list_some, show_bytes, show_share


def list_page_facts(numbers: dict[str, Any]) -> Facts:
    """Return all labels and values of a token store or of shards, those of a side with its name."""
    if numbers.get("decoder") is None:
        return [*list_facts(numbers), *list_length_facts(numbers)]
    facts = list_pair_facts(numbers)
    for name, side in view_sides(numbers):
        listed = [*list_side_facts(side), *list_length_facts(side)]
        facts += [(f"{name}: {label}", value) for label, value in listed]
    return facts


def list_pair_facts(numbers: dict[str, Any]) -> Facts:
    """Return the labels and values of both sides of pairs together."""
    both, options = numbers["both"], numbers["options"]
    size = f"{show_bytes(numbers['bytes'])} in {count(numbers['num_shards'], 'shard')}"
    padding = f"{show_share(both['padding_ratio'])} of all cells of both sides"
    facts: Facts = [
        *list_batches(numbers),
        ("pairs", f"{both['num_pairs']:,}"),
        ("tokens", f"{both['num_tokens']:,} on both sides"),
        ("padding", padding if both["num_padding_cells"] else "none"),
        ("size", size),
    ]
    if numbers["bucket_keys"] is not None:
        facts.append(("bucket keys", list_some(spell_keys(numbers["bucket_keys"]))))
    facts += list_nonzero(numbers["ledger"], SHARDS_LEDGER)
    facts += list_repeated(both, options, noun=PAIR)
    left_out = list_not_packed(both, options, noun=PAIR)
    return facts + [(NOT_PACKED, words) for _, words in left_out]


def list_side_facts(numbers: dict[str, Any]) -> Facts:
    """Return the labels and values of one side of pairs, except those of its lengths."""
    return [
        ("tokens", f"{numbers['ledger']['num_tokens']:,}"),
        *list_target_facts(numbers),
        ("padding", spell_padding(numbers)),
        ("vocabulary", spell_vocabulary(numbers)),
        *tell_tokenizer(numbers),
        *list_store_facts(numbers["stores"]),
    ]


def view_sides(numbers: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each side of pairs, and its numbers."""
    return [(ENCODER, numbers), (DECODER, {**numbers, **numbers["decoder"]})]
