"""Verify all splits of a folder: each as a shard set, and that together they are a split.

No document is in two splits, no sequence is missing from all, and the splits' manifests agree with
that of the folder and add up to the token stores.
"""

from __future__ import annotations

import torch

from seqpack_cli.errors import quote
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.shards.split_set import SplitSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import naming_part
from seqpack_cli.verification.integers.split_documents import (
    SplitOwners,
    compare_assignment,
    find_shared,
)
from seqpack_cli.verification.integers.split_manifests import compare_split_manifests
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import (
    Control,
    DocumentsReport,
    PairsReport,
    Report,
    SplitsReport,
)
from seqpack_cli.verification.verify_pairs import verify_pairs
from seqpack_cli.verification.verify_shards import (
    PackedStore,
    find_packed_stores,
    verify_shards,
)

LEVEL = "structure"


def verify_splits(
    splits: SplitSet, options: VerifyOptions, device: torch.device, progress: Progress
) -> SplitsReport:
    """Verify every split, then all of them together.

    Raises:
        FolderError: a token store is missing, damaged or another one.
        MachineError: the device is out of memory.
    """
    report = SplitsReport(str(splits.path))
    first = next(iter(splits.splits.values()))
    stores = find_packed_stores(first, options)  # all have the same stores: see `open_splits`
    sides = [SplitOwners([*splits.splits]) for _ in first.sides]
    for number, (name, shards) in enumerate(splits.splits.items()):
        with naming_part(name):
            report.splits[name], runs = _verify_split(shards, stores, options, device, progress)
        for owners, run in zip(sides, runs, strict=True):
            place = name if run.shards.side is None else f"{name}: {run.shards.side}"
            if run.coverage is None:
                what = "its sequences were not compared with those of other splits"
                report.add(LEVEL, place, what)
                continue
            for what in owners.mark(number, run.coverage.visits):
                report.add(LEVEL, place, what)
    # The encoder's side decides the split; the documents of both are the same.
    packed, owners = stores[0], sides[0]
    differences = list(compare_split_manifests(splits))
    for what in differences:
        report.add(LEVEL, MANIFEST_NAME, what)
    why_not = packed.why_not or _find_obstacle(packed.store, owners, first)
    report.documents = DocumentsReport(False, 0, why_not)
    if why_not is None and packed.store is not None:
        _verify_documents(report, splits, packed.store, owners, are_equal=not differences)
    if options.self_test:
        store = packed.store if report.documents.compared else None
        _run_self_test(report, store, owners, first)
    return report


def _verify_split(
    shards: ShardSet,
    stores: list[PackedStore],
    options: VerifyOptions,
    device: torch.device,
    progress: Progress,
) -> tuple[Report | PairsReport, list[Verification]]:
    """Verify one split; return its report, and the run of each side."""
    if shards.decoder is not None:
        return verify_pairs(shards, stores, options, device, progress)
    run = verify_shards(shards, stores[0], options, device, progress)
    return run.report, [run]


def _find_obstacle(store: TokenStore | None, owners: SplitOwners, first: ShardSet) -> str | None:
    """Return why documents cannot be compared, which other findings explain."""
    if store is None or len(owners.owners) != len(store):
        return "the splits do not have the sequences of the token stores"
    by = first.options.split_by
    if by is not None and (by not in store.columns or store.columns[by].is_per_token):
        return f"the token stores have no column {quote(by)} with a value per sequence"
    return None


def _verify_documents(
    report: SplitsReport,
    splits: SplitSet,
    store: TokenStore,
    owners: SplitOwners,
    *,
    are_equal: bool,
) -> None:
    """Check that no document, and nothing that decides its split, is in two splits.

    Args:
        are_equal: whether the manifests have the same options.
    """
    options = next(iter(splits.splits.values())).options
    num_documents, found = find_shared(store, owners, by=options.split_by)
    report.documents = DocumentsReport(True, num_documents)
    if not num_documents:
        found.append("no documents, expected at least one in each split")
    if are_equal:
        found += compare_assignment(splits, store, owners)
    for what in found:
        report.add(LEVEL, MANIFEST_NAME, what)


def _run_self_test(
    report: SplitsReport, store: TokenStore | None, owners: SplitOwners, first: ShardSet
) -> None:
    """Put a sequence, and a document, into two splits in memory, and check that it is found."""
    found = next(iter(owners.copy().repeat_sequence()), None)
    report.controls.append(
        Control("sequence in two splits", LEVEL, found is not None, found or "nothing")
    )
    moved = owners.copy()
    caught, found = None, ""
    if store is not None and moved.move_sequence(store):
        found = next(iter(find_shared(store, moved, by=first.options.split_by)[1]), "nothing")
        caught = found != "nothing"
    report.controls.append(Control("document in two splits", LEVEL, caught, found))
    for control in report.controls:
        if control.caught is False:
            what = f"self-test did not catch: {control.name}; found: {control.found}"
            report.add(LEVEL, MANIFEST_NAME, what)
