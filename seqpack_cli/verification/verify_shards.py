"""Verify one shard set: run the levels in order over the shards and their token stores.

Each level checks only the shards that passed the levels before it. `structure`, `roundtrip` and
`run` cover every batch, `forward` and `backward` a sample. The report says what was left out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from seqpack_cli.batching.options import PLAN_VERSION
from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import SeqpackError
from seqpack_cli.files.manifest import has_tokenizer
from seqpack_cli.files.places import Place, at
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import (
    ShardSet,
    locate_stores,
    open_packed_stores,
    share_places,
    show_packed_columns,
)
from seqpack_cli.tokens.store import TokenStore, parse_places
from seqpack_cli.tokens.tokenizer import check_kept_tokenizer
from seqpack_cli.verification.device import steady_arithmetic
from seqpack_cli.verification.integer_levels import verify_roundtrip, verify_structure
from seqpack_cli.verification.integers.store_targets import check_store_targets
from seqpack_cli.verification.levels import Verification
from seqpack_cli.verification.model_levels import (
    measure_speeds,
    verify_computation,
    verify_every_batch,
)
from seqpack_cli.verification.models.tolerances import GATES
from seqpack_cli.verification.options import MODEL, VerifyOptions
from seqpack_cli.verification.report import PlanReport, Report
from seqpack_cli.verification.self_test import run_self_test
from seqpack_cli.verification.user_models.model_level import verify_user_model


@dataclass
class PackedStore:
    """The token stores that shards were packed from, or why they cannot be opened."""

    store: TokenStore | None
    why_not: str | None = None
    is_checked: bool = False  # whether its checksums have been compared
    are_targets_checked: bool = False


def verify_shards(
    shards: ShardSet,
    packed: PackedStore,
    options: VerifyOptions,
    device: torch.device,
    progress: Progress,
) -> Verification:
    """Run all levels; return the run with its report.

    Raises:
        FolderError: a token store is damaged.
        MachineError: the device is out of memory.
    """
    run = start_run(shards, packed, options, device, progress)
    batches = verify_structure(run)
    verify_targets(run, packed)
    with steadily(run):
        batches = send_through(run, batches, packed)
        compute(run, batches)
    return run


def start_run(
    shards: ShardSet,
    packed: PackedStore,
    options: VerifyOptions,
    device: torch.device,
    progress: Progress,
) -> Verification:
    """Return a run over shards, or over a side of them, before its first level."""
    whole_store, store = packed.store, None
    if whole_store is not None:
        store = show_packed_columns(whole_store, shards)
    report = _start_report(shards, options, device, packed.why_not)
    run = Verification(shards, options, device, report, progress, store, whole_store)
    run.is_store_checked = packed.is_checked
    return run


def verify_targets(run: Verification, packed: PackedStore) -> None:
    """Check the targets of the stores, once for all splits."""
    if packed.store is not None and not packed.are_targets_checked:
        run.report.findings += check_store_targets(packed.store)
        packed.are_targets_checked = True


def steadily(run: Verification) -> AbstractContextManager[None]:
    """Return a context in which torch computes the same bits again."""
    options = run.options
    hidden_size = options.hidden_size if options.model is None else None
    return steady_arithmetic(run.device, hidden_size=hidden_size)


def send_through(run: Verification, batches: BatchTable, packed: PackedStore) -> BatchTable:
    """Run the level `roundtrip`, if it is asked for."""
    if run.store is not None and "roundtrip" in run.options.levels:
        batches = verify_roundtrip(run, batches, run.store)
        packed.is_checked = True
    return batches


def compute(run: Verification, batches: BatchTable) -> None:
    """Run the levels that compute, and what was asked for besides levels."""
    options = run.options
    if "run" in options.levels:
        batches = verify_every_batch(run, batches)
    for level in ("forward", "backward"):
        if level in options.levels:
            batches = verify_computation(run, level, batches)
    if MODEL in options.levels:
        batches = verify_user_model(run, batches)
    if options.compare:
        measure_speeds(run, batches)
    if options.self_test:
        run_self_test(run, batches, run.store)


def find_packed_stores(shards: ShardSet, options: VerifyOptions) -> list[PackedStore]:
    """Open the token stores that each side of the shards was packed from.

    Level `structure` works without them; of pairs, no side has some if the other has none.

    Raises:
        FolderError: a store was named or a level needs it, and it is missing, damaged or another;
            or the recorded stores are there, but damaged.
    """
    places = parse_places(options.tokens) if options.tokens is not None else []
    at(shards.path).check_copies(shards.manifest["shards"])
    found = [
        _find_packed_store(side, options, own)
        for side, own in zip(shards.sides, share_places(shards, places), strict=True)
    ]
    for side in found:
        if side.store is None:
            return [PackedStore(None, side.why_not) for _ in found]
    return found


def _find_packed_store(
    shards: ShardSet, options: VerifyOptions, places: list[Place]
) -> PackedStore:
    try:
        found = locate_stores(shards, places)
    except SeqpackError as error:
        if options.level != "structure" or places:
            raise
        return PackedStore(None, error.message)
    store = open_packed_stores(shards, found, check_indices=False)
    for each in store.folders:
        files = [file for part in each.manifest["parts"] for file in part["files"]]
        at(each.path).check_copies(files)
    store.check_indices()
    is_same = store.manifest["tokenizer_blake3"] == shards.manifest["tokenizer_blake3"]
    if is_same and has_tokenizer(store.manifest):
        store.read_tokenizer_json()  # only its digest: level `structure` builds the same file
    else:
        check_kept_tokenizer(store.folders[0].path, store.manifest)
    return PackedStore(store)


def _start_report(
    shards: ShardSet, options: VerifyOptions, device: torch.device, why_not: str | None
) -> Report:
    plan_version = shards.manifest["plan_version"]
    if why_not is None and plan_version != PLAN_VERSION:
        why_not = f"the shards have plan version {plan_version}, this seqpack has {PLAN_VERSION}"
    ledger = shards.manifest["ledger"]
    is_cuda = device.type == "cuda"
    return Report(
        shards=str(shards.path),
        layout=shards.layout,
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if is_cuda else "CPU",
        dtype=options.dtype,
        cell=options.cell if options.model is None else None,
        num_layers=options.num_layers,
        bidirectional=options.bidirectional,
        hidden_size=options.hidden_size,
        seed=options.seed,
        num_shards=shards.num_shards,
        num_batches=len(shards),
        num_sequences=ledger["num_sequences"],
        num_tokens=ledger["num_tokens"],
        is_gate=getattr(torch, options.dtype) in GATES,
        columns=[*shards.columns],
        side=shards.side,
        plan=PlanReport(why_not is None, plan_version, why_not),
    )
