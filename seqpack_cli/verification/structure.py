"""Level `structure`: files, checksums and numbers of every shard, without torch.

Holds when every file is there, regular, of the manifest's size and sha256; every batch's lengths,
`batch_sizes`, ids and padding belong together; and over all shards each sequence of the store
stands exactly once, less what the ledger says was dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.manifest import MANIFEST_NAME
from seqpack_cli.run_folder import OWN_PATTERN
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.storage import LOCK_NAME
from seqpack_cli.verification.report import Finding, LevelReport

LEVEL = "structure"


@dataclass(frozen=True)
class BatchStatistics:
    """What sampling needs to know of a batch that passed."""

    index: int  # of the whole set
    num_rows: int
    longest: int
    shortest: int
    num_tokens: int
    num_padding_cells: int


def check_structure(
    shards: ShardSet, report: LevelReport
) -> tuple[list[Finding], list[BatchStatistics]]:
    """Check every shard; give what was found, and the batches of the shards that hold."""
    ledger = shards.manifest["ledger"]
    num_dropped = sum(ledger["num_dropped_sequences"].values())
    seen = np.zeros(ledger["num_sequences"] + num_dropped, bool)  # sequences of the whole store
    findings: list[Finding] = []
    statistics: list[BatchStatistics] = []
    for number in range(shards.num_shards):
        found, of_shard = _check_shard(shards, number, seen)
        findings += found
        report.num_batches += len(of_shard)
        report.num_tokens += sum(batch.num_tokens for batch in of_shard)
        statistics += of_shard if not found else []
    findings += _check_folder(shards)
    if not findings:
        num_missing = len(seen) - int(seen.sum())
        if num_missing != num_dropped:
            what = (
                f"{num_missing} sequences are missing, the ledger says {num_dropped} were dropped"
            )
            findings.append(Finding(LEVEL, MANIFEST_NAME, what))
        findings += _check_counts(MANIFEST_NAME, ledger, statistics)
    return findings, statistics


def _check_shard(
    shards: ShardSet, number: int, seen: np.ndarray
) -> tuple[list[Finding], list[BatchStatistics]]:
    """Check one shard, and mark its sequences as seen."""
    entry = shards.manifest["shards"][number]
    first_batch = int(shards.batch_offsets[number])
    try:
        shard = shards.open_shard(number)
        shard.check_sha256()
    except FolderError as error:
        place = f"{shards.path / entry['name']}: "
        return [Finding(LEVEL, entry["name"], error.message.removeprefix(place))], []
    findings, statistics = [], []
    for inside in range(len(shard)):
        index = first_batch + inside
        try:
            batch = shard[inside]
        except FolderError as error:
            what = error.message.removeprefix(f"{shard.path}: batch {inside}: ")
            findings.append(Finding(LEVEL, entry["name"], what, batch=index))
            continue
        longest, shortest = int(batch.lengths[0]), int(batch.lengths[-1])
        num_tokens = int(batch.lengths.sum())
        statistics.append(
            BatchStatistics(
                index, len(batch.lengths), longest, shortest, num_tokens, batch.count_padding()
            )
        )
    fault = _mark_seen(shard.tensors["original_indices"], seen)
    if fault is not None:
        findings.append(Finding(LEVEL, entry["name"], fault))
    if not findings:
        findings += _check_counts(entry["name"], entry, statistics)
    return findings, statistics


def _mark_seen(indices: np.ndarray, seen: np.ndarray) -> str | None:
    """Mark the sequences of a shard; say if one is from nowhere or stands twice."""
    outside = np.flatnonzero((indices < 0) | (indices >= len(seen)))
    if len(outside):
        return f"original index {indices[outside[0]]}, the store has {len(seen)} sequences"
    values, counts = np.unique(indices, return_counts=True)
    twice = values[(counts > 1) | seen[values]]
    seen[indices] = True
    return f"sequence {twice[0]} stands twice" if len(twice) else None


def _check_folder(shards: ShardSet) -> list[Finding]:
    expected = {entry["name"] for entry in shards.manifest["shards"]}
    expected |= {MANIFEST_NAME, "tokenizer.json", "run.json", LOCK_NAME}
    names = sorted(path.name for path in shards.path.iterdir())
    findings = [
        Finding(LEVEL, name, "not in the manifest")
        for name in names
        if OWN_PATTERN.fullmatch(name) and name not in expected
    ]
    try:
        shards.read_tokenizer_json()
    except FolderError as error:
        what = error.message.removeprefix(f"{shards.path / 'tokenizer.json'}: ")
        findings.append(Finding(LEVEL, "tokenizer.json", what))
    return findings


def _check_counts(
    name: str, entry: dict[str, Any], statistics: list[BatchStatistics]
) -> list[Finding]:
    """Compare the counts that the manifest gives for a shard or for all with the batches."""
    counted = {
        "num_batches": len(statistics),
        "num_sequences": sum(batch.num_rows for batch in statistics),
        "num_tokens": sum(batch.num_tokens for batch in statistics),
        "num_padding_cells": sum(batch.num_padding_cells for batch in statistics),
        "longest": max((batch.longest for batch in statistics), default=0),
    }
    holder = "the shards have" if name == MANIFEST_NAME else "the shard has"
    return [
        Finding(LEVEL, name, f"{key} is {entry[key]}, {holder} {number}")
        for key, number in counted.items()
        if key in entry and entry[key] != number
    ]
