"""Compare the counts in a manifest with the batches: of each shard, of each store, and in total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.manifest import NUM_TARGETS, add_up_stores, count_of_stores
from seqpack_cli.shards.pack_shard import count_targets
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage, show_times
from seqpack_cli.verification.integers.promises import find_unused_keys

LEVEL = "structure"
AFTER_SELECTION = ("overflow", "last_batch")  # of several visits, some may be dropped


def check_totals(shards: ShardSet, coverage: Coverage, batches: BatchTable) -> list[Finding]:
    """Compare the manifest's totals with the batches of all shards."""
    manifest, ledger = shards.manifest, shards.manifest["ledger"]
    findings = [Finding(LEVEL, MANIFEST_NAME, what) for what in check_visits(manifest, coverage)]
    findings += check_counts(MANIFEST_NAME, ledger, batches)
    if not len(batches):
        findings.append(Finding(LEVEL, MANIFEST_NAME, "no batches, expected at least one"))
    of_stores = add_up_stores([entry["stores"] for entry in manifest["shards"]])
    for number, (claimed, counted) in enumerate(zip(ledger["stores"], of_stores, strict=True), 1):
        findings += _compare_store(MANIFEST_NAME, number, claimed, counted)
    findings += [*_check_split(manifest, batches), *_check_targets(manifest)]
    if shards.side is not None:  # of pairs, a key is that of both sides
        return findings
    keys = find_unused_keys(batches, shards.options, manifest["bucket_keys"])
    return findings + [
        Finding(LEVEL, MANIFEST_NAME, f"no batch has the width of bucket key {key}") for key in keys
    ]


def check_visits(manifest: dict[str, Any], coverage: Coverage) -> Iterator[str]:
    """Yield where the sequences of all shards and the ledger do not add up to the stores'."""
    ledger = manifest["ledger"]
    num_missing, num_dropped = coverage.num_missing, sum(ledger["num_dropped_sequences"].values())
    # Of a sequence with several visits, one may be dropped and another not.
    if num_missing > num_dropped or (num_missing != num_dropped and not coverage.has_repeats):
        yield f"{num_missing} sequences are missing, the ledger says {num_dropped} were dropped"
    for name in ("sequences", "tokens"):
        number = ledger[f"num_{name}"] + sum(ledger[f"num_dropped_{name}"].values())
        in_stores = sum(entry[f"num_{name}"] for entry in manifest["stores"])
        repeated = ledger[f"num_repeated_{name}"]
        if number != in_stores + repeated:
            what = f"{number} {name}, dropped ones included, the stores have {in_stores}"
            yield what + (f" and {repeated} are repeated" if repeated else "")
    num_visits = int(coverage.visits.sum(dtype=np.int64))
    if coverage.has_repeats and num_visits != ledger["num_sequences"]:
        yield f"num_sequences is {ledger['num_sequences']}, the shards visit {num_visits}"
    if not any(ledger["num_dropped_sequences"].get(reason) for reason in AFTER_SELECTION):
        yield from _check_whole_passes(manifest["stores"], coverage)


def _check_whole_passes(stores: Sequence[dict[str, Any]], coverage: Coverage) -> Iterator[str]:
    """Yield the first sequence of each store that is packed, but less often than its passes."""
    offsets = to_offsets([entry["num_sequences"] for entry in stores]).tolist()
    for entry, (first, last) in zip(stores, pairwise(offsets), strict=True):
        least = int(Fraction(entry["passes"]))
        visits: np.ndarray = coverage.visits[first:last]
        if least > 1 and len(few := np.flatnonzero((visits > 0) & (visits < least))):
            packed = show_times(int(visits[few[0]]))
            what = f"sequence {first + int(few[0])} is packed {packed}"
            yield f"{what}, expected at least {show_times(least)}"


def check_store_counts(shard: Shard, stores: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Compare what a shard's entry says of each store with its rows."""
    counts = count_of_stores([entry["num_sequences"] for entry in stores], shard.tensors)
    for number, (claimed, counted) in enumerate(zip(shard.entry["stores"], counts, strict=True), 1):
        yield from _compare_store(shard.path.name, number, claimed, counted)


def check_shard_targets(shard: Shard) -> Iterator[Finding]:
    """Compare the number of targets in a shard's entry with its column of them."""
    claimed, found = shard.entry[NUM_TARGETS], count_targets(shard.columns, shard.tensors)
    if claimed != found:
        what = f"{NUM_TARGETS} is {claimed}, the shard has {found}"
        yield Finding(LEVEL, shard.path.name, what)


def _check_targets(manifest: dict[str, Any]) -> Iterator[Finding]:
    claimed = manifest["ledger"][NUM_TARGETS]
    found = sum(entry[NUM_TARGETS] for entry in manifest["shards"])
    if claimed != found:
        what = f"{NUM_TARGETS} is {claimed}, the shards have {found}"
        yield Finding(LEVEL, MANIFEST_NAME, what)


def _compare_store(
    name: str, number: int, claimed: dict[str, int], counted: dict[str, int]
) -> Iterator[Finding]:
    holder = "the shards have" if name == MANIFEST_NAME else "the shard has"
    for key, found in counted.items():
        if claimed[key] != found:
            what = f"{key} of store {number} is {claimed[key]}, {holder} {found}"
            yield Finding(LEVEL, name, what)


def _check_split(manifest: dict[str, Any], batches: BatchTable) -> list[Finding]:
    """Compare the number of split sequences in the manifest with that of all shards."""
    found = batches.add_up(batches.num_split_sequences)
    of_shards = sum(entry["num_split_sequences"] for entry in manifest["shards"])
    return [
        Finding(LEVEL, MANIFEST_NAME, f"num_split_sequences is {claimed}, the shards have {found}")
        for claimed in {manifest["ledger"]["num_split_sequences"], of_shards}
        if claimed != found
    ]


def check_counts(name: str, entry: dict[str, Any], batches: BatchTable) -> list[Finding]:
    """Compare the manifest's counts, of one shard or of all, with the batches."""
    counted = {
        "num_batches": len(batches),
        "num_rows": int(batches.num_rows.sum()),
        "num_filler_rows": int(batches.num_filler_rows.sum()),
        "num_sequences": int(batches.num_sequences.sum()),
        "num_tokens": int(batches.num_tokens.sum()),
        "num_padding_cells": int((batches.num_cells - batches.num_tokens).sum()),
        "longest": int(batches.longest.max(initial=0)),
    }
    holder = "the shards have" if name == MANIFEST_NAME else "the shard has"
    return [
        Finding(LEVEL, name, f"{key} is {entry[key]}, {holder} {number}")
        for key, number in counted.items()
        if key in entry and entry[key] != number
    ]
