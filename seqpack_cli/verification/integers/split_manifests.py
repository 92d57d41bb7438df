"""Compare the manifest of splits with those of the splits: properties, stores and counts.

`open_splits` has compared their options and checksums, and each split's own ledger is compared with
its batches elsewhere. Here every split must leave out exactly the sequences of the others, so that
together they have all sequences of the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join, normpath
from typing import Any

from seqpack_cli.batching.selection import OTHER_SPLITS
from seqpack_cli.errors import quote
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import FIELDS_OF_SIDES, SplitSet

# What the splits of one run have in common, besides their options.
SHARED = (
    *("plan_version", "layout", "dtype", "pad_id", "padding_side", "vocab_size", "max_id"),
    *("bos_id", "eos_id", "unk_id", "tokenizer_blake3", "columns"),
)
OF_OPTIONS = ("layout", "padding_side")  # the options of all splits have them too
STORE_NAMES = ("blake3", "num_sequences", "num_tokens")


def compare_split_manifests(splits: SplitSet) -> Iterator[str]:
    """Yield where the manifests of the splits disagree with each other or with that of all."""
    first, options = next(iter(splits.splits.values())), splits.manifest["options"]
    expected = [{name: side.manifest[name] for name in SHARED} for side in first.sides]
    for name, shards in splits.splits.items():
        for field, side, of_side in zip(FIELDS_OF_SIDES, shards.sides, expected, strict=False):
            yield from _compare_stores(splits.manifest[field], name, side)
            wanted = {**of_side, **{name: options[name] for name in OF_OPTIONS}}
            place = quote(name) if side.side is None else f"{quote(name)}, {side.side}"
            for what, value in wanted.items():
                found = side.manifest[what]
                if found != value:
                    yield f"{what} of split {place} is {quote(found)}, expected {quote(value)}"
    yield from _compare_counts(splits)


def _compare_stores(stores: list[dict[str, Any]], name: str, shards: ShardSet) -> Iterator[str]:
    found, expected = (
        [[entry[field] for field in STORE_NAMES] for entry in entries]
        for entries in (shards.manifest["stores"], stores)
    )
    if found != expected:
        yield f"split {quote(name)} was packed from other stores than those named"
    for number, (entry, own) in enumerate(zip(stores, shards.manifest["stores"], strict=True), 1):
        path = own["path"]  # as the split's folder refers to it, a URL in every folder alike
        path = normpath(join(name, path)) if path.startswith("..") else path
        if entry["path"] != path:
            what = f"path of store {number} is {quote(entry['path'])}"
            yield f"{what}, split {quote(name)} has it at {quote(path)}"


def _compare_counts(splits: SplitSet) -> Iterator[str]:
    """Compare what each split leaves out for the others with what the others have."""
    for field, key in (("sequences", "num_sequences"), ("tokens", "num_tokens")):
        in_stores = sum(store[key] for store in splits.manifest["stores"])
        for entry in splits.manifest["splits"]:
            ledger = splits.splits[entry["name"]].manifest["ledger"]
            left_out = ledger[f"num_dropped_{field}"].get(OTHER_SPLITS, 0)
            place = f"{key} of split {quote(entry['name'])} is {entry[key]}"
            if left_out != in_stores - entry[key]:
                what = f"its ledger leaves out {left_out} of {in_stores} for the other splits"
                yield f"{place}, {what}"
            if not entry[key]:
                yield f"{place}, expected at least 1"
