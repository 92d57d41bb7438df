"""Check that a training loop can read several shard sets as one.

A model expects one layout, one vocabulary, one kind of padding, and the same columns with the same
classes from every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from seqpack_cli.errors import join_items, quote
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.stream_shares import count_streams
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.made_columns import TARGETS

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
    """Raise ValueError unless all shards have the same layout, tokenizer, padding and columns."""
    for shards in sets[1:]:
        _check_pair(shards, sets[0])


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


def _check_pair(shards: ShardSet, first: ShardSet) -> None:
    for name, advice in SHARED.items():
        found, expected = shards.manifest[name], first.manifest[name]
        if found != expected:
            raise ValueError(
                f"{shards.path}: {name} is {quote(found)}, {first.path} has {quote(expected)}; "
                f"{advice}"
            )
    found, expected = count_streams(shards.manifest), count_streams(first.manifest)
    if found != expected:
        raise ValueError(
            f"{shards.path}: {found} streams, {first.path} has {expected}; "
            "pack them with the same --batch-size"
        )
    for name in {**first.columns, **shards.columns}:
        column, other = shards.columns.get(name), first.columns.get(name)
        if column != other:
            advice = "pass columns= to leave it out"
            if name == TARGETS:
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
