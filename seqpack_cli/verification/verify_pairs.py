"""Verify shards of pairs: each side as a shard set of its own, and that both hold the same pairs.

If `structure` or `roundtrip` finds a fault in one side of a shard, neither is checked at the levels
above; the levels that compute take each side alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from seqpack_cli.batching.options import SIDES
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import OptionError
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import naming_part
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integer_levels import PlannedAgain, verify_structure
from seqpack_cli.verification.integers.pair_documents import Documents, compare_documents
from seqpack_cli.verification.integers.pair_structure import check_pairs
from seqpack_cli.verification.integers.plan_comparison import plan_again
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.pair_damages import control_pairs
from seqpack_cli.verification.report import DocumentsReport, PairsReport
from seqpack_cli.verification.verify_shards import (
    PackedStore,
    compute,
    send_through,
    start_run,
    steadily,
    verify_targets,
)


def verify_pairs(
    shards: ShardSet,
    packed: Sequence[PackedStore],
    options: VerifyOptions,
    device: torch.device,
    progress: Progress,
) -> tuple[PairsReport, list[Verification]]:
    """Run all levels; return the report, and the run of each side.

    Args:
        packed: the stores of each side.

    Raises:
        FolderError: a token store is damaged.
        MachineError: the device is out of memory.
        OptionError: a model of the user's shall be checked.
    """
    if options.model is not None:
        raise OptionError(
            "--model conflicts with pairs: a model of pairs takes both sides at once, verify "
            "checks each side alone",
            hint="leave out --model, or pack one side by itself and check that part of the model",
        )
    both = zip(shards.sides, packed, strict=True)
    runs = [start_run(side, stores, options, device, progress) for side, stores in both]
    report = PairsReport(str(shards.path), {n: r.report for n, r in zip(SIDES, runs, strict=True)})
    planned = _plan(runs, report)
    tables = [verify_structure(run, again) for run, again in zip(runs, planned, strict=True)]
    for run, stores in zip(runs, packed, strict=True):
        verify_targets(run, stores)
    tables = _add(report, runs, tables, _check_structure(runs, tables))
    with steadily(runs[0]):
        for number, (name, run) in enumerate(zip(SIDES, runs, strict=True)):
            with naming_part(name):
                tables[number] = send_through(run, tables[number], packed[number])
        tables = _keep_common(runs, tables)
        tables = _verify_documents(report, runs, tables)
        for name, run, batches in zip(SIDES, runs, tables, strict=True):
            with naming_part(name):
                compute(run, batches)
    if options.self_test:
        _run_self_test(report, runs, tables)
    return report, runs


def _plan(runs: Sequence[Verification], report: PairsReport) -> list[PlannedAgain]:
    """Plan the pairs again; return what each side is compared with."""
    encoder, decoder = runs
    if encoder.whole_store is None:
        return [(None, None)] * len(runs)
    source, planned, refusals = plan_again(
        encoder.shards,
        encoder.whole_store,
        decoder=decoder.whole_store,
        is_planned=encoder.report.plan.compared,
    )
    report.own_findings += refusals
    return [(source, planned), (source, None if planned is None else planned.decoder)]


def _open_sides(runs: Sequence[Verification], number: int) -> list[Shard]:
    return [run.shards.open_shard(number) for run in runs]


def _check_structure(
    runs: Sequence[Verification], tables: Sequence[BatchTable]
) -> Iterator[Finding]:
    """Yield what is wrong between the sides of shards that have no fault of their own."""
    shards = runs[0].shards
    for number in _find_common(runs, tables):
        keys = shards.manifest["bucket_keys"]
        yield from check_pairs(_open_sides(runs, number), shards.options, keys)


def _verify_documents(
    report: PairsReport, runs: Sequence[Verification], tables: list[BatchTable]
) -> list[BatchTable]:
    """Compare the documents of both sides, if the stores are there and the level is asked for."""
    stores = [run.store for run in runs if run.store is not None]
    if "roundtrip" not in runs[0].options.levels or len(stores) < len(runs):
        report.documents = DocumentsReport(why_not="--level roundtrip compares them")
        return tables
    documents = list(map(Documents, stores))
    num_documents = int(tables[0].num_real_rows.sum())
    report.documents = DocumentsReport(compared=True, num_documents=num_documents)
    found = (
        finding
        for number in _find_common(runs, tables)
        for finding in compare_documents(_open_sides(runs, number), documents)
    )
    return _add(report, runs, tables, found)


def _run_self_test(
    report: PairsReport, runs: Sequence[Verification], tables: Sequence[BatchTable]
) -> None:
    """Damage the pairs of the smallest shard without a fault in memory."""
    numbers = _find_common(runs, tables)
    if not numbers:
        return
    entries = runs[0].shards.manifest["shards"]
    number = min(numbers, key=lambda one: int(entries[one]["bytes"]))
    stores: list[TokenStore] = [run.store for run in runs if run.store is not None]
    report.controls += control_pairs(runs, _open_sides(runs, number), stores)
    for control in report.controls:
        if control.caught is False:
            what = f"self-test did not catch: {control.name}; found: {control.found}"
            report.own_findings.append(Finding(control.level, entries[number]["name"], what))


def _find_common(runs: Sequence[Verification], tables: Sequence[BatchTable]) -> list[int]:
    """Return the numbers of the shards of which both sides have batches."""
    both = zip(runs, tables, strict=True)
    found = [set(np.unique(run.find_shards(table)).tolist()) for run, table in both]
    return sorted(set.intersection(*found))


def _keep_common(runs: Sequence[Verification], tables: Sequence[BatchTable]) -> list[BatchTable]:
    """Return the batches of shards of which no side has a fault."""
    numbers = _find_common(runs, tables)
    return [
        table.take(np.isin(run.find_shards(table), numbers))
        for run, table in zip(runs, tables, strict=True)
    ]


def _add(
    report: PairsReport,
    runs: Sequence[Verification],
    tables: Sequence[BatchTable],
    findings: Iterator[Finding],
) -> list[BatchTable]:
    """Add findings of both sides; return the batches of shards without one."""
    shards = runs[0].shards
    for finding in findings:
        report.own_findings.append(finding)
        if finding.batch is not None:
            for run in runs:
                run.faulty_shards.add(shards.find(finding.batch)[0])
    kept = [run.keep_faultless(table) for run, table in zip(runs, tables, strict=True)]
    return _keep_common(runs, kept)
