"""Level `structure`: check files, checksums and arrays of every shard, without torch.

It passes if every file exists, is regular, and has the manifest's size and checksum; if lengths,
`batch_sizes`, ids and padding of every batch fit together; and if all shards together visit each
sequence of the stores as often as their passes allow, except visits that the ledger counts as
dropped. If the token stores are available, every batch must also be the planned one; if no plan can
be made again, the sequences must be those that the options select.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from seqpack_cli.batching.options import DECODER
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import FolderError
from seqpack_cli.files.locks import LOCK_NAME
from seqpack_cli.files.manifest import MANIFEST_NAME, SIDE, tokenizer_name
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.runs.run_folder import OWN_PATTERN
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.tokenizer import check_kept_tokenizer
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage, find_twice
from seqpack_cli.verification.integers.plan_comparison import (
    PlannedShards,
    compare_shard,
    compare_totals,
)
from seqpack_cli.verification.integers.promises import check_promises, check_sizes
from seqpack_cli.verification.integers.row_fills import make_fills
from seqpack_cli.verification.integers.selected_visits import compare_selection
from seqpack_cli.verification.integers.totals import (
    check_counts,
    check_shard_targets,
    check_store_counts,
    check_totals,
)
from seqpack_cli.verification.report import LevelReport

LEVEL = "structure"
# Counting rows takes a byte per sequence, so these limits keep a forged manifest from taking all
# memory: above FREE_SEQUENCES it may claim only so many sequences per row, which has 24 bytes.
MAX_SEQUENCES = 1 << 40
MAX_SEQUENCES_PER_ROW = 1024
FREE_SEQUENCES = 1 << 26


def check_structure(
    shards: ShardSet,
    report: LevelReport,
    source: Selection | None = None,
    planned: PlannedShards | None = None,
) -> tuple[list[Finding], BatchTable, Coverage | None]:
    """Check every shard.

    Args:
        source: the sequences that the options select; the shards are compared with them if there
            is no plan.
        planned: the plan of the token stores, to compare with.

    Returns:
        The findings, the batches of the shards without one, and the sequences of all shards; None
        if the manifest claims too many.
    """
    excess = _find_excess(shards)
    if excess is not None:
        return [excess], BatchTable.join([]), None
    coverage = Coverage.of_stores(shards.manifest["stores"])
    with ThreadPoolExecutor(1) as pool:  # in parallel, since building a tokenizer takes long
        in_folder = pool.submit(_check_folder, shards)
        damage, miscounts, unplanned, tables = _check_shards(shards, coverage, report, planned)
        damage += in_folder.result()
    fault = coverage.check_pieces() if not damage else None
    if fault is not None:
        damage.append(Finding(LEVEL, MANIFEST_NAME, fault))
    batches = BatchTable.join(tables)
    findings = [*damage, *miscounts] or check_totals(shards, coverage, batches)
    if planned is not None and not findings:
        unplanned += compare_totals(shards, planned)
    elif source is not None and not findings:
        unplanned += compare_selection(shards, source, coverage)
    return [*findings, *unplanned], batches, coverage


def _check_shards(
    shards: ShardSet, coverage: Coverage, report: LevelReport, planned: PlannedShards | None
) -> tuple[list[Finding], list[Finding], list[Finding], list[BatchTable]]:
    """Return damage, wrong counts, differences from the plan, and the batches of sound shards."""
    damage: list[Finding] = []
    miscounts: list[Finding] = []
    unplanned: list[Finding] = []
    tables: list[BatchTable] = []
    numbers = range(shards.num_shards)
    checked = map_ahead(
        lambda number: _check_file(shards, number), numbers, num_threads=count_cores()
    )
    fills = make_fills(shards)
    for number, (shard, found, batches) in enumerate(checked):
        entry = shards.manifest["shards"][number]
        if shard is not None:
            found += mark_rows(shard, coverage)
        found += fills.check(shard if not found else None)
        miscounted = [] if found else check_counts(entry["name"], entry, batches)
        if shard is not None and not found and not miscounted:
            miscounted += check_store_counts(shard, shards.manifest["stores"])
            miscounted += check_shard_targets(shard)
        if planned is not None and shard is not None and not found and not miscounted:
            unplanned += compare_shard(shard, planned, number)
        damage += found
        miscounts += miscounted
        report.num_batches += len(batches)
        report.num_tokens += int(batches.num_tokens.sum())
        tables += [batches] if not found and not miscounted else []
    return [*damage, *fills.finish()], miscounts, unplanned, tables


def _find_excess(shards: ShardSet) -> Finding | None:
    """Return a finding if the manifest claims so many sequences that memory would run out."""
    num_rows = sum(entry["num_rows"] for entry in shards.manifest["shards"])
    num_sequences = shards.num_store_sequences
    if num_sequences > MAX_SEQUENCES:
        what = f"{num_sequences:,} sequences in the stores, expected at most {MAX_SEQUENCES:,}"
        return Finding(LEVEL, MANIFEST_NAME, what)
    if num_sequences > FREE_SEQUENCES + MAX_SEQUENCES_PER_ROW * num_rows:
        what = f"{num_sequences:,} sequences in the stores, in only {num_rows:,} rows"
        return Finding(LEVEL, MANIFEST_NAME, what)
    return None


def _check_file(shards: ShardSet, number: int) -> tuple[Shard | None, list[Finding], BatchTable]:
    """Check one shard's file and batches; return the shard, findings, and its sound batches."""
    entry = shards.manifest["shards"][number]
    try:
        shard = shards.open_shard(number)
        if shards.side != DECODER:  # it is the encoder's file
            shard.check_digest()
    except FolderError as error:
        place = f"{shards.path / entry['name']}: "
        what = error.message.removeprefix(place)
        return None, [Finding(LEVEL, entry["name"], what)], BatchTable.join([])
    found, batches = check_batches(shard, max_tokens=shards.options.max_tokens)
    found += _check_promises(entry["name"], batches, shards)
    return shard, sorted(found, key=lambda finding: finding.batch or 0), batches


def check_batches(shard: Shard, *, max_tokens: int | None) -> tuple[list[Finding], BatchTable]:
    """Check all batches of a shard; return findings, and the sound batches.

    Args:
        max_tokens: the longest piece of a split sequence in varlen.
    """
    name, findings = shard.path.name, []
    unsound = shard.find_unsound()
    for inside in np.flatnonzero(unsound).tolist():
        try:
            shard.check(inside)
        except FolderError as error:
            what = error.message.removeprefix(f"{shard.path}: batch {inside}: ")
            findings.append(Finding(LEVEL, name, what, batch=shard.first_batch + inside))
        else:
            raise AssertionError(f"{shard.path}: batch {inside} is unsound, but opens")
    table = shard.arrays.measure(first_batch=shard.first_batch, max_piece=max_tokens)
    return findings, table.take(~unsound)


def _check_promises(name: str, batches: BatchTable, shards: ShardSet) -> list[Finding]:
    """Compare the batches of a shard with the options of pack."""
    if shards.side is None:
        broken = check_promises(batches, shards.options, shards.manifest["bucket_keys"])
    else:
        broken = check_sizes(batches, shards.options)
    return [Finding(LEVEL, name, what, batch=index) for index, what in sorted(broken)]


def mark_rows(shard: Shard, coverage: Coverage) -> list[Finding]:
    """Mark the sequences of a shard as seen; return the findings."""
    tensors = shard.tensors
    rows = np.flatnonzero(tensors["lengths"] > 0)  # without filler, whose index was checked
    starts = shard.arrays.piece_starts[rows] if shard.arrays.rules.shares_rows else None
    indices = tensors["original_indices"][rows]
    fault = coverage.mark(indices, tensors["lengths"][rows], starts)
    if fault is None and coverage.has_repeats:
        fault = find_twice(shard.arrays.batch_of_rows[rows], indices, starts)
    if fault is None:
        return []
    batch, row = shard.arrays.find_batch(int(rows[fault[0]]))
    return [Finding(LEVEL, shard.path.name, fault[1], batch=shard.first_batch + batch, row=row)]


def _check_folder(shards: ShardSet) -> list[Finding]:
    """Check the tokenizer of a side, and, of the encoder's or the only one, all names."""
    tokenizer = tokenizer_name(shards.manifest)
    expected = {entry["name"] for entry in shards.manifest["shards"]}
    expected |= {MANIFEST_NAME, "run.json", LOCK_NAME}
    expected |= {tokenizer} if shards.side is None else {tokenizer, tokenizer_name({SIDE: DECODER})}
    names = sorted(path.name for path in shards.path.iterdir()) if shards.side != DECODER else []
    findings = [
        Finding(LEVEL, name, "not in the manifest")
        for name in names
        if OWN_PATTERN.fullmatch(name) and name not in expected
    ]
    try:
        check_kept_tokenizer(shards.path, shards.manifest)
    except FolderError as error:
        what = error.message.removeprefix(f"{shards.path / tokenizer}: ")
        findings.append(Finding(LEVEL, tokenizer, what))
    return findings
