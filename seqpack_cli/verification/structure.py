"""Level `structure`: files, checksums and numbers of every shard, without torch.

Holds when every file is there, regular, of the manifest's size and sha256; every batch's lengths,
`batch_sizes`, ids and padding belong together; and over all shards each sequence of the store
stands exactly once, less what the ledger says was dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.run_folder import MANIFEST_NAME, OWN_PATTERN
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


def check_structure(
    shards: ShardSet, report: LevelReport
) -> tuple[list[Finding], list[BatchStatistics]]:
    """Check every shard; give what was found, and the batches of the shards that hold."""
    findings: list[Finding] = []
    statistics: list[BatchStatistics] = []
    indices: list[np.ndarray] = []
    for number in range(shards.num_shards):
        found, of_shard = _check_shard(shards, number)
        findings += found
        report.num_batches += len(of_shard)
        report.num_tokens += sum(batch.num_tokens for batch in of_shard)
        if not found:
            statistics += of_shard
            indices.append(shards.open_shard(number).tensors["original_indices"])
    findings += _check_folder(shards)
    if not findings:
        findings += _check_coverage(shards, indices)
        findings += _check_ledger(shards, statistics)
    return findings, statistics


def _check_shard(shards: ShardSet, number: int) -> tuple[list[Finding], list[BatchStatistics]]:
    name = shards.manifest["shards"][number]["name"]
    first_batch = int(shards.batch_offsets[number])
    try:
        shard = shards.open_shard(number)
        shard.check_sha256()
    except FolderError as error:
        return [Finding(LEVEL, name, _without_place(error))], []
    findings, statistics = [], []
    for inside in range(len(shard)):
        index = first_batch + inside
        try:
            lengths = shard[inside].lengths
        except FolderError as error:
            findings.append(Finding(LEVEL, name, _without_place(error), batch=index))
            continue
        longest, shortest = int(lengths[0]), int(lengths[-1])
        statistics.append(
            BatchStatistics(index, len(lengths), longest, shortest, int(lengths.sum()))
        )
    return findings, statistics


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
        findings.append(Finding(LEVEL, "tokenizer.json", _without_place(error)))
    return findings


def _check_coverage(shards: ShardSet, indices: list[np.ndarray]) -> list[Finding]:
    """Check that each sequence stands once: none twice, none missing, none from nowhere."""
    ledger = shards.manifest["ledger"]
    num_dropped = sum(ledger["num_dropped_sequences"].values())
    num_sequences = ledger["num_sequences"] + num_dropped  # of the whole store
    seen = np.zeros(num_sequences, bool)
    for number, found in enumerate(indices):
        name = shards.manifest["shards"][number]["name"]
        outside = np.flatnonzero((found < 0) | (found >= num_sequences))
        if len(outside):
            what = f"original index {found[outside[0]]}, the store has {num_sequences} sequences"
            return [Finding(LEVEL, name, what)]
        values, counts = np.unique(found, return_counts=True)
        twice = values[(counts > 1) | seen[values]]
        if len(twice):
            return [Finding(LEVEL, name, f"sequence {twice[0]} stands twice")]
        seen[found] = True
    num_missing = num_sequences - int(seen.sum())
    if num_missing != num_dropped:
        what = f"{num_missing} sequences are missing, the ledger says {num_dropped} were dropped"
        return [Finding(LEVEL, MANIFEST_NAME, what)]
    return []


def _check_ledger(shards: ShardSet, statistics: list[BatchStatistics]) -> list[Finding]:
    ledger = shards.manifest["ledger"]
    counted = {
        "num_batches": len(statistics),
        "num_sequences": sum(batch.num_rows for batch in statistics),
        "num_tokens": sum(batch.num_tokens for batch in statistics),
    }
    return [
        Finding(LEVEL, MANIFEST_NAME, f"{name} is {ledger[name]}, the shards have {number}")
        for name, number in counted.items()
        if ledger[name] != number
    ]


def _without_place(error: FolderError) -> str:
    """Drop the path and batch from a message: a finding has them as fields."""
    text = error.message.split(": ", 1)[-1]
    return text.split(": ", 1)[-1] if text.startswith("batch ") else text
