"""Check that a training loop can read several shard sets as one.

A model expects one layout, one vocabulary, one kind of padding, and the same columns with the same
classes from every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blake3 import blake3

from seqpack_cli.errors import join_items, quote
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.shared_rows import count_streams
from seqpack_cli.tokens.columns import TARGETS, Column
from seqpack_cli.training.chosen_columns import name_columns

SAME_TOKENIZER = "tokenize or import both corpora with the same tokenizer"
# Fields of the manifest that must be equal, and what to do if they are not.
SHARED = {
    "layout": "pack them with the same --layout",
    "tokenizer_blake3": SAME_TOKENIZER,
    "vocab_size": SAME_TOKENIZER,
    "pad_id": "pack them with the same --pad-id",
    "padding_side": "pack them with the same --padding-side",
}


def check_alike(sets: Sequence[ShardSet]) -> None:
    """Raise ValueError unless all shards have the same layout, tokenizer, padding and columns.

    Of pairs, both sides must have.
    """
    for shards in sets[1:]:
        _check_both(shards, sets[0])


def check_different(sets: Sequence[ShardSet]) -> None:
    """Raise ValueError if the same shards are there twice, even if they are in two folders."""
    seen: dict[str, ShardSet] = {}
    for shards in sets:
        twin = seen.setdefault(shards.fingerprint, shards)
        if twin is not shards:
            raise ValueError(
                f"{shards.path}: the same shards as {twin.path}; "
                "pack with --passes to visit sequences several times in an epoch"
            )


def join_fingerprints(fingerprints: Sequence[str]) -> str:
    """Return the checksum of batches one after another, from those of the parts."""
    spelled = " ".join(["concatenation", *fingerprints])
    return blake3(spelled.encode()).hexdigest()


def join_keys(keys: Sequence[list[Any] | None]) -> list[Any] | None:
    """Return the bucket keys of all, rising; None if some have none, whose rows have any width.

    A key is a length, or for pairs a tuple of two.
    """
    known = [tuple(key) if isinstance(key, list) else key for each in keys for key in each or ()]
    return None if None in keys else sorted(set(known))


def _check_both(shards: ShardSet, first: ShardSet) -> None:
    if len(shards.sides) != len(first.sides):
        kinds = ["pairs" if each.decoder else "single sequences" for each in (shards, first)]
        raise ValueError(f"{shards.path}: holds {kinds[0]}, {first.path} {kinds[1]}")
    for side, twin in zip(shards.sides, first.sides, strict=True):
        for name, advice in SHARED.items():
            found, expected = side.manifest[name], twin.manifest[name]
            if found != expected:
                what = f"the {side.side}'s {name}" if side.side else name
                raise ValueError(
                    f"{shards.path}: {what} is {quote(found)}, {first.path} has {quote(expected)}; "
                    f"{advice}"
                )
    found, expected = count_streams(shards.manifest), count_streams(first.manifest)
    if found != expected:
        raise ValueError(
            f"{shards.path}: {found} streams, {first.path} has {expected}; "
            "pack them with the same --batch-size"
        )
    columns, columns_of_first = name_columns(shards), name_columns(first)
    for name in {**columns_of_first, **columns}:
        column, other = columns.get(name), columns_of_first.get(name)
        if column != other:
            advice = "pass columns= to leave it out"
            if name in (TARGETS, f"{PREFIX}{TARGETS}"):
                advice += ": labels still honour the targets of each"
            raise ValueError(
                f"column {quote(name)}: {shards.path} has {_describe(column)}, "
                f"{first.path} has {_describe(other)}; {advice}"
            )


def _describe(column: Column | None) -> str:
    if column is None:
        return "none"
    classes = f" of {join_items(map(quote, column.class_names))}" if column.class_names else ""
    return f"{column.kind}{classes}"
