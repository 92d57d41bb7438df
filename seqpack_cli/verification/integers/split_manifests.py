"""Compare the manifest of splits with those of the splits: options, shares, stores and counts.

Each split's own ledger is compared with its batches elsewhere. Here every split must leave out
exactly the sequences of the others, so that together they have all sequences of the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqpack_cli.batching.splits import parse_splits
from seqpack_cli.errors import quote
from seqpack_cli.shards.recorded_options import APART
from seqpack_cli.shards.selected_store import OTHER_SPLITS
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_manifest import SplitSet, describe_shares

# What the splits of one run have in common, besides their options.
SHARED = (
    *("plan_version", "layout", "dtype", "pad_id", "padding_side", "vocab_size", "max_id"),
    *("tokenizer_blake3", "columns"),
)
STORE_NAMES = ("blake3", "num_sequences", "num_tokens")


def compare_split_manifests(splits: SplitSet) -> Iterator[str]:
    """Yield where the manifests of the splits disagree with each other or with that of all."""
    first = next(iter(splits.splits.values()))
    yield from _compare_shares(splits.manifest, first)
    for name, shards in splits.splits.items():
        yield from _compare_options(splits.manifest["options"], name, shards)
        yield from _compare_stores(splits.manifest["stores"], name, shards)
        for field in SHARED:
            found, expected = shards.manifest[field], first.manifest[field]
            if found != expected:
                what = f"{field} of split {quote(name)} is {quote(found)}"
                yield f"{what}, the first split has {quote(expected)}"
    yield from _compare_counts(splits)


def _compare_shares(manifest: dict[str, Any], first: ShardSet) -> Iterator[str]:
    """Compare the splits in the manifest with the option that gave them."""
    expected = parse_splits(first.options)
    if expected is None:
        yield "its shards were packed without --split"
        return
    found = [(entry["name"], entry["share"]) for entry in manifest["splits"]]
    if found != [*describe_shares(expected)]:
        yield f"splits are {quote(found)}, pack --split gives {quote([*describe_shares(expected)])}"
    for field, value in (("split_seed", expected.seed), ("split_by", expected.by)):
        if manifest[field] != value:
            yield f"{field} is {quote(manifest[field])}, pack --split gives {quote(value)}"


def _compare_options(options: dict[str, Any], name: str, shards: ShardSet) -> Iterator[str]:
    found = {**shards.manifest["options"], "layout": shards.layout}
    expected = {**options, "split_name": name}
    for field in APART[1:]:  # those of the manifest itself are resolved
        expected.pop(field, None)
    for field in sorted({*found, *expected}):
        if field not in found or field not in expected or found[field] != expected[field]:
            value, wanted = (quote(side.get(field)) for side in (found, expected))
            yield f"option {field} of split {quote(name)} is {value}, expected {wanted}"


def _compare_stores(stores: list[dict[str, Any]], name: str, shards: ShardSet) -> Iterator[str]:
    found, expected = (
        [[entry[field] for field in STORE_NAMES] for entry in entries]
        for entries in (shards.manifest["stores"], stores)
    )
    if found != expected:
        yield f"split {quote(name)} was packed from other stores than those named"


def _compare_counts(splits: SplitSet) -> Iterator[str]:
    """Compare what each split leaves out for the others with what the others have."""
    for field, key in (("sequences", "num_sequences"), ("tokens", "num_tokens")):
        in_stores = sum(store[key] for store in splits.manifest["stores"])
        total = sum(entry[key] for entry in splits.manifest["splits"])
        if total != in_stores:
            yield f"the splits have {total} {field}, the stores have {in_stores}"
        for entry in splits.manifest["splits"]:
            ledger = splits.splits[entry["name"]].manifest["ledger"]
            left_out = ledger[f"num_dropped_{field}"].get(OTHER_SPLITS, 0)
            place = f"{key} of split {quote(entry['name'])} is {entry[key]}"
            if left_out != in_stores - entry[key]:
                what = f"its ledger leaves out {left_out} of {in_stores} for the other splits"
                yield f"{place}, {what}"
            if not entry[key]:
                yield f"{place}, expected at least 1"
