"""The levels that compare integers: `structure` and `roundtrip`.

A level is a function that takes batches, adds its findings to the report, and returns the batches
of the shards without a finding.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.options import ENCODER
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import naming_batch
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.batch_roundtrip import check_batch, compare_manifests
from seqpack_cli.verification.integers.column_values import compare_columns
from seqpack_cli.verification.integers.label_values import check_labels
from seqpack_cli.verification.integers.plan_comparison import PlannedShards, plan_again
from seqpack_cli.verification.integers.roundtrip_workers import check_shards
from seqpack_cli.verification.integers.shard_roundtrip import ID_CELLS_PER_TOKEN
from seqpack_cli.verification.integers.structure import check_structure
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.report import LevelReport

PlannedAgain = tuple[Selection | None, PlannedShards | None]


def verify_structure(run: Verification, again: PlannedAgain | None = None) -> BatchTable:
    """Check the files and arrays of every batch, and that it is the planned one.

    Args:
        again: of pairs, what the options select and the plan of this side, None of what is not
            known.
    """
    with run.level("structure") as level:
        source, refusals = None, list[Finding]()
        if again is not None:
            source, run.planned = again
        elif run.whole_store is not None:
            source, run.planned, refusals = plan_again(
                run.shards, run.whole_store, is_planned=run.report.plan.compared
            )
        findings, batches, run.coverage = check_structure(run.shards, level, source, run.planned)
        for finding in [*refusals, *findings]:
            run.add(finding)
        if run.store is not None:
            _check_columns(run, run.store)
    return run.keep_faultless(batches)


def _check_columns(run: Verification, store: TokenStore) -> None:
    """Compare the columns that the manifest of the shards names with those of the token store."""
    for what in compare_columns(run.shards.columns, store.columns):
        run.add(Finding("structure", MANIFEST_NAME, what))
        run.faulty_shards.update(range(run.shards.num_shards))  # they share the manifest


def verify_roundtrip(run: Verification, batches: BatchTable, store: TokenStore) -> BatchTable:
    """Send every id through the device; check a sample with torch's row-by-row functions too.

    Labels are checked of every batch if there is a column `targets`, else of the sample.

    Raises:
        FolderError: the token store is damaged.
    """
    roundtrip, length = run.roundtrip(store), run.shards.options.piece_length
    has_targets = TARGETS in run.shards.columns
    num_passes = 1 + sum(column.is_per_token for column in run.shards.columns.values())
    run.progress.on_total(int(batches.num_tokens.sum()) * num_passes)
    with run.level("roundtrip") as level:
        if not run.is_store_checked:
            store.check_digest()
        for what in compare_manifests(run.shards.manifest, store):
            run.add(Finding("roundtrip", MANIFEST_NAME, what))
            run.faulty_shards.update(range(run.shards.num_shards))  # they share the manifest
        numbers = np.unique(run.find_shards(batches)).tolist()
        num_workers = run.options.num_workers
        for finding in check_shards(run.shards, roundtrip, numbers, run.progress, num_workers):
            run.add(finding)
        level.num_batches = len(batches)
        level.num_tokens = int(batches.num_tokens.sum())
        level.num_column_values = _count_values(run.shards, batches)
        batches = run.keep_faultless(batches)
        max_cells = ID_CELLS_PER_TOKEN * run.options.max_batch_tokens
        small = batches.take(batches.num_rows * batches.longest <= max_cells)
        chosen = run.sample(small)
        for index in chosen:
            name, batch = run.read(index)
            with naming_batch(name, index):
                for row, what in check_batch(batch, store, run.device, piece_length=length):
                    run.add(Finding("roundtrip", name, what, index, row))
        level.num_sampled_batches = len(chosen)
        if run.shards.side == ENCODER:  # whose tokens have no labels
            return run.keep_faultless(batches)
        labelled = batches if has_targets else batches.take(np.isin(batches.index, chosen))
        _check_labels(run, level, run.keep_faultless(labelled), store)
    return run.keep_faultless(batches)


def _check_labels(
    run: Verification, level: LevelReport, batches: BatchTable, store: TokenStore
) -> None:
    """Compare the labels that training makes of some batches with the token store."""
    numbers = run.find_shards(batches)
    run.progress.on_total(int(batches.num_tokens.sum()))
    for number in np.unique(numbers).tolist():
        shard = run.shards.open_shard(number)
        inside = batches.index[numbers == number] - shard.first_batch
        for checked in check_labels(shard, store, inside):
            level.num_labels += checked.num_tokens
            level.num_label_targets += checked.num_targets
            run.progress.on_advance(checked.num_tokens)
            for finding in checked.findings:
                run.add(finding)


def _count_values(shards: ShardSet, batches: BatchTable) -> int:
    """Count the values of all columns of some batches, without filler and padding."""
    counts = (
        batches.num_tokens if column.is_per_token else batches.num_real_rows
        for column in shards.columns.values()
    )
    return sum(int(count.sum()) for count in counts)
