"""Level `structure`: files, checksums and numbers of every shard, without torch.

Holds when every file is there, regular, of the manifest's size and sha256; every batch's lengths,
`batch_sizes`, ids and padding belong together; and over all shards each sequence of the store
stands exactly once, less what the ledger says was dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seqpack_cli.batching.buckets import find_bucket_key
from seqpack_cli.errors import FolderError
from seqpack_cli.manifest import MANIFEST_NAME
from seqpack_cli.run_folder import OWN_PATTERN
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard_manifest import read_max_tokens
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.storage import LOCK_NAME
from seqpack_cli.verification.coverage import Coverage
from seqpack_cli.verification.report import Finding, LevelReport

LEVEL = "structure"
MAX_SEQUENCES = 1 << 40  # of a store: a larger claim would only take memory


@dataclass(frozen=True)
class BatchStatistics:
    """What sampling needs to know of a batch that passed."""

    index: int  # of the whole set
    num_rows: int
    longest: int
    shortest: int  # of rows that hold a sequence
    num_tokens: int
    num_padding_cells: int
    num_filler_rows: int = 0
    num_sequences: int = 0  # that begin here; all but later pieces of split ones
    num_split_sequences: int = 0  # whose second piece is here


def check_structure(
    shards: ShardSet, report: LevelReport
) -> tuple[list[Finding], list[BatchStatistics]]:
    """Check every shard; give what was found, and the batches of the shards that hold."""
    ledger = shards.manifest["ledger"]
    num_dropped = sum(ledger["num_dropped_sequences"].values())
    num_sequences = ledger["num_sequences"] + num_dropped
    if num_sequences > MAX_SEQUENCES:
        what = f"{num_sequences:,} sequences with those dropped, no store has so many"
        return [Finding(LEVEL, MANIFEST_NAME, what)], []
    coverage = Coverage(num_sequences)  # of the whole store
    damage: list[Finding] = []
    miscounts: list[Finding] = []
    statistics: list[BatchStatistics] = []
    for number, entry in enumerate(shards.manifest["shards"]):
        found, of_shard = _check_shard(shards, number, coverage)
        miscounted = [] if found else _check_counts(entry["name"], entry, of_shard)
        damage += found
        miscounts += miscounted
        report.num_batches += len(of_shard)
        report.num_tokens += sum(batch.num_tokens for batch in of_shard)
        statistics += of_shard if not found and not miscounted else []
    damage += _check_folder(shards)
    fault = coverage.check_pieces() if not damage else None
    if fault is not None:
        damage.append(Finding(LEVEL, MANIFEST_NAME, fault))
    findings = [*damage, *miscounts]
    if not findings:
        num_missing = coverage.num_missing
        if num_missing != num_dropped:
            what = (
                f"{num_missing} sequences are missing, the ledger says {num_dropped} were dropped"
            )
            findings.append(Finding(LEVEL, MANIFEST_NAME, what))
        findings += _check_counts(MANIFEST_NAME, ledger, statistics)
        findings += _check_split(shards.manifest, statistics)
    return findings, statistics


def _check_shard(
    shards: ShardSet, number: int, coverage: Coverage
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
        found = _measure(index, batch, shards.manifest)
        statistics.append(found)
        findings += [
            Finding(LEVEL, entry["name"], what, batch=index)
            for what in check_promises(batch, found, shards.manifest)
        ]
    rows = shard.tensors["lengths"] > 0  # not of filler, whose index was checked
    indices, lengths = shard.tensors["original_indices"][rows], shard.tensors["lengths"][rows]
    starts = shard.tensors.get("piece_starts")
    fault = coverage.mark(indices, lengths, None if starts is None else starts[rows])
    if fault is not None:
        findings.append(Finding(LEVEL, entry["name"], fault))
    return findings, statistics


def _measure(index: int, batch: Batch, manifest: dict[str, Any]) -> BatchStatistics:
    num_filler_rows = batch.num_filler_rows if isinstance(batch, PaddedBatch) else 0
    num_rows = len(batch.lengths)
    lengths = batch.lengths[: num_rows - num_filler_rows]
    num_sequences, num_split = len(lengths), 0
    if isinstance(batch, VarlenBatch):
        assert batch.piece_starts is not None  # noqa: S101 - shards always have them
        num_sequences = int((batch.piece_starts == 0).sum())
        num_split = int((batch.piece_starts == read_max_tokens(manifest)).sum())
    return BatchStatistics(
        index,
        num_rows,
        longest=int(lengths.max()),
        shortest=int(lengths.min()),
        num_tokens=int(lengths.sum()),
        num_padding_cells=batch.count_padding(),
        num_filler_rows=num_filler_rows,
        num_sequences=num_sequences,
        num_split_sequences=num_split,
    )


def check_promises(batch: Batch, found: BatchStatistics, manifest: dict[str, Any]) -> Iterator[str]:
    """Yield where a batch breaks a limit that the manifest says pack was told."""
    options, keys = manifest["options"], manifest["bucket_keys"]
    batch_size, max_tokens = options.get("batch_size"), read_max_tokens(manifest)
    num_rows = found.num_rows
    if type(batch_size) is int and num_rows > batch_size:
        yield f"{num_rows} rows, pack was told {batch_size} at most"
    min_length, max_length = options.get("min_length"), options.get("max_length")
    is_whole = not isinstance(batch, VarlenBatch)  # not pieces
    if is_whole and type(min_length) is int and found.shortest < min_length:
        yield f"a row of {found.shortest} tokens, pack was told {min_length} at least"
    if is_whole and type(max_length) is int and found.longest > max_length:
        yield f"a row of {found.longest} tokens, pack was told {max_length} at most"
    num_cells = found.num_tokens + found.num_padding_cells
    if max_tokens is not None and num_cells > max_tokens:
        yield f"{num_cells} cells, pack was told {max_tokens} tokens at most"
    if is_whole and isinstance(keys, list):
        buckets = {find_bucket_key(keys, length) for length in (found.shortest, found.longest)}
        if len(buckets) > 1:
            yield f"rows of {found.shortest} and {found.longest} tokens belong to other buckets"
    if isinstance(batch, PaddedBatch):
        width, multiple = batch.ids.shape[1], options.get("pad_to_multiple")
        if isinstance(keys, list) and width not in keys:
            yield f"width {width} is none of the bucket keys"
        if type(multiple) is int and multiple > 0 and width % multiple:
            yield f"width {width} is no multiple of {multiple}"


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


def _check_split(manifest: dict[str, Any], statistics: list[BatchStatistics]) -> list[Finding]:
    """Compare the split sequences of all shards; a piece amiss is better named by its row."""
    found = sum(batch.num_split_sequences for batch in statistics)
    of_shards = sum(entry["num_split_sequences"] for entry in manifest["shards"])
    return [
        Finding(LEVEL, MANIFEST_NAME, f"num_split_sequences is {claimed}, the shards have {found}")
        for claimed in {manifest["ledger"]["num_split_sequences"], of_shards}
        if claimed != found
    ]


def _check_counts(
    name: str, entry: dict[str, Any], statistics: list[BatchStatistics]
) -> list[Finding]:
    """Compare the counts that the manifest gives for a shard or for all with the batches."""
    counted = {
        "num_batches": len(statistics),
        "num_rows": sum(batch.num_rows for batch in statistics),
        "num_filler_rows": sum(batch.num_filler_rows for batch in statistics),
        "num_sequences": sum(batch.num_sequences for batch in statistics),
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
