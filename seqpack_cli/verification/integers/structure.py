"""Level `structure`: files, checksums and numbers of every shard, without torch.

Holds when every file is there, regular, of the manifest's size and checksum; every batch's lengths,
`batch_sizes`, ids and padding belong together; and over all shards each sequence of the store
stands exactly once, less what the ledger says was dropped. With the plan of the token store at
hand, every batch is the planned one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.errors import FolderError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.disk import LOCK_NAME
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.runs.earlier_run import OWN_PATTERN
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.vocabulary import check_kept_tokenizer
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.plan_comparison import (
    PlannedShards,
    compare_shard,
    compare_totals,
)
from seqpack_cli.verification.integers.promises import check_promises, find_unused_keys
from seqpack_cli.verification.report import Finding, LevelReport

LEVEL = "structure"
MAX_SEQUENCES = 1 << 40  # of a store: a larger claim would only take memory
# Each sequence takes a byte while rows are counted, and each row 24 in its file: a manifest of lies
# can ask for no more than so many times the shards' size.
MAX_SEQUENCES_PER_ROW = 1024
FREE_SEQUENCES = 1 << 26


def check_structure(
    shards: ShardSet, report: LevelReport, planned: PlannedShards | None = None
) -> tuple[list[Finding], BatchTable]:
    """Check every shard; give what was found, and the batches of the shards that hold.

    Args:
        planned: what the plan of the token store has, to compare with.
    """
    ledger = shards.manifest["ledger"]
    num_sequences = ledger["num_sequences"] + sum(ledger["num_dropped_sequences"].values())
    lie = _find_lie(num_sequences, shards)
    if lie is not None:
        return [lie], BatchTable.join([])
    coverage = Coverage(num_sequences)  # of the whole store
    with ThreadPoolExecutor(1) as pool:  # beside the shards, since a tokenizer takes long to build
        in_folder = pool.submit(_check_folder, shards)
        damage, miscounts, unplanned, tables = _check_shards(shards, coverage, report, planned)
        damage += in_folder.result()
    fault = coverage.check_pieces() if not damage else None
    if fault is not None:
        damage.append(Finding(LEVEL, MANIFEST_NAME, fault))
    batches = BatchTable.join(tables)
    findings = [*damage, *miscounts] or _check_totals(shards, coverage, batches)
    if planned is not None and not findings:
        unplanned += compare_totals(shards, planned)
    return [*findings, *unplanned], batches


def _check_shards(
    shards: ShardSet, coverage: Coverage, report: LevelReport, planned: PlannedShards | None
) -> tuple[list[Finding], list[Finding], list[Finding], list[BatchTable]]:
    """Check every shard; give damage, wrong counts, what is not as planned, and sound batches."""
    damage: list[Finding] = []
    miscounts: list[Finding] = []
    unplanned: list[Finding] = []
    tables: list[BatchTable] = []
    numbers = range(shards.num_shards)
    checked = map_ahead(
        lambda number: _check_file(shards, number), numbers, num_threads=count_cores()
    )
    for number, (shard, found, batches) in enumerate(checked):
        entry = shards.manifest["shards"][number]
        if shard is not None:
            found += mark_rows(shard, coverage)
        miscounted = [] if found else check_counts(entry["name"], entry, batches)
        if planned is not None and shard is not None and not found and not miscounted:
            unplanned += compare_shard(shard, planned, number)
        damage += found
        miscounts += miscounted
        report.num_batches += len(batches)
        report.num_tokens += int(batches.num_tokens.sum())
        tables += [batches] if not found and not miscounted else []
    return damage, miscounts, unplanned, tables


def _find_lie(num_sequences: int, shards: ShardSet) -> Finding | None:
    """Refuse numbers that would only take memory."""
    num_rows = sum(entry["num_rows"] for entry in shards.manifest["shards"])
    if num_sequences > MAX_SEQUENCES:
        what = f"{num_sequences:,} sequences, dropped ones included, expected at most "
        what += f"{MAX_SEQUENCES:,}"
        return Finding(LEVEL, MANIFEST_NAME, what)
    if num_sequences > FREE_SEQUENCES + MAX_SEQUENCES_PER_ROW * num_rows:
        what = f"{num_sequences:,} sequences, dropped ones included, in only {num_rows:,} rows"
        return Finding(LEVEL, MANIFEST_NAME, what)
    return None


def _check_totals(shards: ShardSet, coverage: Coverage, batches: BatchTable) -> list[Finding]:
    """Compare the manifest with the batches of all shards."""
    ledger, findings = shards.manifest["ledger"], []
    num_missing, num_dropped = coverage.num_missing, sum(ledger["num_dropped_sequences"].values())
    if num_missing != num_dropped:
        what = f"{num_missing} sequences are missing, the ledger says {num_dropped} were dropped"
        findings.append(Finding(LEVEL, MANIFEST_NAME, what))
    findings += check_counts(MANIFEST_NAME, ledger, batches)
    findings += _check_split(shards.manifest, batches)
    keys = find_unused_keys(batches, shards.options, shards.manifest["bucket_keys"])
    return findings + [
        Finding(LEVEL, MANIFEST_NAME, f"no batch has the width of bucket key {key}") for key in keys
    ]


def _check_file(shards: ShardSet, number: int) -> tuple[Shard | None, list[Finding], BatchTable]:
    """Check one shard's file and batches; give it if it opens, what was found, sound batches."""
    entry = shards.manifest["shards"][number]
    try:
        shard = shards.open_shard(number)
        shard.check_digest()
    except FolderError as error:
        place = f"{shards.path / entry['name']}: "
        what = error.message.removeprefix(place)
        return None, [Finding(LEVEL, entry["name"], what)], BatchTable.join([])
    found, batches = check_batches(shard, max_tokens=shards.options.max_tokens)
    found += _check_promises(entry["name"], batches, shards)
    return shard, sorted(found, key=lambda finding: finding.batch or 0), batches


def check_batches(shard: Shard, *, max_tokens: int | None) -> tuple[list[Finding], BatchTable]:
    """Check all batches of a shard; give what was found, and the sound batches.

    Args:
        max_tokens: where varlen splits a sequence.
    """
    name, findings = shard.path.name, []
    unsound = shard.find_unsound()
    for inside in np.flatnonzero(unsound).tolist():
        try:
            shard[inside]
        except FolderError as error:
            what = error.message.removeprefix(f"{shard.path}: batch {inside}: ")
            findings.append(Finding(LEVEL, name, what, batch=shard.first_batch + inside))
        else:
            raise AssertionError(f"{shard.path}: batch {inside} is unsound, but opens")
    table = shard.arrays.measure(first_batch=shard.first_batch, max_piece=max_tokens)
    return findings, table.take(~unsound)


def _check_promises(name: str, batches: BatchTable, shards: ShardSet) -> list[Finding]:
    """Compare the batches of a shard with what pack was told."""
    broken = check_promises(batches, shards.options, shards.manifest["bucket_keys"])
    return [Finding(LEVEL, name, what, batch=index) for index, what in sorted(broken)]


def mark_rows(shard: Shard, coverage: Coverage) -> list[Finding]:
    """Mark the sequences of a shard as seen; give what was found."""
    tensors = shard.tensors
    rows = np.flatnonzero(tensors["lengths"] > 0)  # not filler, whose index was checked
    starts = shard.arrays.piece_starts[rows] if shard.arrays.rules.shares_rows else None
    fault = coverage.mark(tensors["original_indices"][rows], tensors["lengths"][rows], starts)
    if fault is None:
        return []
    batch, row = shard.arrays.find_batch(int(rows[fault[0]]))
    return [Finding(LEVEL, shard.path.name, fault[1], batch=shard.first_batch + batch, row=row)]


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
        check_kept_tokenizer(shards.path, shards.manifest)
    except FolderError as error:
        what = error.message.removeprefix(f"{shards.path / 'tokenizer.json'}: ")
        findings.append(Finding(LEVEL, "tokenizer.json", what))
    return findings


def _check_split(manifest: dict[str, Any], batches: BatchTable) -> list[Finding]:
    """Compare the split sequences of all shards; a piece amiss is better named by its row."""
    found = batches.add_up(batches.num_split_sequences)
    of_shards = sum(entry["num_split_sequences"] for entry in manifest["shards"])
    return [
        Finding(LEVEL, MANIFEST_NAME, f"num_split_sequences is {claimed}, the shards have {found}")
        for claimed in {manifest["ledger"]["num_split_sequences"], of_shards}
        if claimed != found
    ]


def check_counts(name: str, entry: dict[str, Any], batches: BatchTable) -> list[Finding]:
    """Compare the counts that the manifest gives for a shard or for all with the batches."""
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
