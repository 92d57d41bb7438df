"""The verify run: shards and their token store -> the levels in order -> a report.

Levels are cumulative, and a shard stops at its first failing one. `structure` and `roundtrip` cover
every batch, `forward` and `backward` a sample. What was not covered, or cut, is in the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from seqpack_cli.errors import FolderError, check_choice, check_positive
from seqpack_cli.execution import Progress
from seqpack_cli.manifest import MANIFEST_NAME
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_manifest import read_max_tokens
from seqpack_cli.shards.shard_set import ShardSet, open_shards
from seqpack_cli.tokens.token_store import TokenStore, open_store
from seqpack_cli.verification import roundtrip
from seqpack_cli.verification.batch_ids import choose_limits, take_ids
from seqpack_cli.verification.cells import CELLS
from seqpack_cli.verification.computation import check_backward, check_forward
from seqpack_cli.verification.device import naming_batch, open_device, steady_arithmetic
from seqpack_cli.verification.limits import GATES
from seqpack_cli.verification.report import LEVELS, Finding, LevelReport, Report
from seqpack_cli.verification.sampling import choose_batches
from seqpack_cli.verification.structure import BatchStatistics, check_structure
from seqpack_cli.verification.ways import Model, build_model

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class VerifyOptions:
    """How deep to look, and with what."""

    tokens: Path | None = None  # the store, if it is not where the manifest says
    device: str = "cpu"
    level: str = "backward"
    cell: str = "lstm"
    dtype: str = "float32"
    sample: int | None = 32  # batches of forward and backward; None is all
    max_batch_tokens: int = 32_768  # larger batches are computed up to there
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("level", self.level, LEVELS)
        check_choice("cell", self.cell, CELLS)
        check_choice("dtype", self.dtype, DTYPES)
        check_positive("sample", self.sample)
        check_positive("max_batch_tokens", self.max_batch_tokens)


@dataclass
class _Verification:
    """A verify run under way."""

    shards: ShardSet
    options: VerifyOptions
    report: Report
    progress: Progress
    faulty_shards: set[int] = field(default_factory=set)

    def add(self, finding: Finding, batch: int | None = None) -> None:
        self.report.findings.append(finding)
        if batch is not None:
            self.faulty_shards.add(self.shards.find(batch)[0])

    def keep_faultless(self, batches: list[BatchStatistics]) -> list[BatchStatistics]:
        return [
            batch for batch in batches if self.shards.find(batch.index)[0] not in self.faulty_shards
        ]

    def read(self, index: int) -> tuple[str, Batch]:
        number, inside = self.shards.find(index)
        shard = self.shards.open_shard(number)
        return shard.path.name, shard[inside]


def verify_shards(
    path: Path, options: VerifyOptions | None = None, *, progress: Progress | None = None
) -> Report:
    """Prove shards on a device.

    Raises:
        FolderError: they are incomplete or no shards, or the token store is not theirs.
        MachineError: the device is not there, or its memory is not enough.
    """
    options = options or VerifyOptions()
    depth = LEVELS.index(options.level) + 1
    shards = open_shards(path, check_present=False)
    device = open_device(options.device)
    store = _open_matching_store(shards, options.tokens) if depth > 1 else None
    run = _Verification(
        shards, options, _start_report(shards, options, device), progress or Progress()
    )
    batches = _verify_structure(run)
    if store is not None:
        batches = _verify_roundtrip(run, batches, store, device)
    with steady_arithmetic():
        for level in LEVELS[2:depth]:
            batches = _verify_computation(run, level, batches, device)
    return run.report


def _start_report(shards: ShardSet, options: VerifyOptions, device: torch.device) -> Report:
    ledger = shards.manifest["ledger"]
    is_cuda = device.type == "cuda"
    return Report(
        shards=str(shards.path),
        layout=shards.layout,
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if is_cuda else "CPU",
        dtype=options.dtype,
        cell=options.cell,
        seed=options.seed,
        num_shards=shards.num_shards,
        num_batches=len(shards),
        num_sequences=ledger["num_sequences"],
        num_tokens=ledger["num_tokens"],
        is_gate=DTYPES[options.dtype] in GATES,
    )


def _verify_structure(run: _Verification) -> list[BatchStatistics]:
    with _level(run, "structure") as level:
        findings, batches = check_structure(run.shards, level)
        for finding in findings:
            run.add(finding)
    return batches


def _verify_roundtrip(
    run: _Verification, batches: list[BatchStatistics], store: TokenStore, device: torch.device
) -> list[BatchStatistics]:
    run.progress.on_total(sum(batch.num_tokens for batch in batches))
    max_tokens = read_max_tokens(run.shards.manifest)
    with _level(run, "roundtrip") as level:
        for what in roundtrip.compare_manifests(run.shards.manifest, store):
            run.add(Finding("roundtrip", MANIFEST_NAME, what))
            run.faulty_shards.update(range(run.shards.num_shards))  # it is the manifest of all
        for statistics in batches:
            name, batch = run.read(statistics.index)
            with naming_batch(name, statistics.index):
                for row, what in roundtrip.check_batch(batch, store, device, max_tokens=max_tokens):
                    finding = Finding("roundtrip", name, what, statistics.index, row)
                    run.add(finding, statistics.index)
            level.num_batches += 1
            level.num_tokens += statistics.num_tokens
            run.progress.on_advance(statistics.num_tokens)
    return run.keep_faultless(batches)


def _verify_computation(
    run: _Verification,
    level_name: str,
    batches: list[BatchStatistics],
    device: torch.device,
) -> list[BatchStatistics]:
    """Run a sample of the batches through models; `forward` and `backward` differ in the check."""
    options = run.options
    check = {"forward": check_forward, "backward": check_backward}[level_name]
    chosen = choose_batches(batches, num_batches=options.sample, seed=options.seed)
    run.progress.on_total(len(chosen))
    limits = choose_limits(level_name, device, max_tokens=options.max_batch_tokens)
    rows_ended = False
    with _level(run, level_name) as level:
        models = _build_models(run, device) if chosen else []
        for index in chosen:
            name, batch = run.read(index)
            with naming_batch(name, index):
                ids = take_ids(batch, device, limits)
                for remembers, model in enumerate(models):
                    generator = torch.Generator().manual_seed(options.seed + index)
                    for comparison in check(
                        model, ids, remembers=bool(remembers), generator=generator
                    ):
                        level.note_error(comparison.quantity, comparison.error, comparison.limit)
                        if comparison.failed:
                            row = comparison.row
                            row = None if row is None else int(ids.row_numbers[row])
                            run.add(Finding(level_name, name, str(comparison), index, row), index)
            rows_ended |= int(ids.lengths[0]) != int(ids.lengths[-1])
            level.num_batches += 1
            level.num_tokens += len(ids.packed.data)
            level.num_cut_batches += ids.was_cut
            run.progress.on_advance(1)
    if chosen and not rows_ended and any(batch.longest > batch.shortest for batch in batches):
        run.report.notes.append(
            f"{level_name}: no computed batch had rows that end before others, raise --sample"
        )
    return run.keep_faultless(batches)


def _build_models(run: _Verification, device: torch.device) -> list[Model]:
    """Build the model as torch initialises it, and one that remembers if the cell can."""
    cell = CELLS[run.options.cell]
    return [
        build_model(
            cell,
            num_embeddings=run.shards.manifest["max_id"] + 1,
            device=device,
            dtype=DTYPES[run.options.dtype],
            seed=run.options.seed,
            remembers=remembers,
        )
        for remembers in ((False, True) if cell.memory_gate is not None else (False,))
    ]


def _open_matching_store(shards: ShardSet, path: Path | None) -> TokenStore:
    """Open the token store that the shards were packed from, and check its bytes.

    Raises:
        FolderError: it is not there, is another one, or is damaged.
    """
    found = path or shards.find_store()
    if found is None:
        place = shards.manifest["tokens_path"][:200]
        raise FolderError(
            f"{shards.path}: its token store is no longer at {place}",
            hint="pass --tokens STORE, or --level structure to go without it",
        )
    store = open_store(found)
    if store.sha256 != shards.manifest["tokens_sha256"]:
        raise FolderError(
            f"{store.path}: another token store than the one these shards were packed from",
            hint="pass --tokens STORE with that one, or pack again",
        )
    store.check_sha256()
    return store


@contextmanager
def _level(run: _Verification, name: str) -> Iterator[LevelReport]:
    level = LevelReport(name)
    run.report.levels.append(level)
    started = time.monotonic()
    yield level
    level.seconds = round(time.monotonic() - started, 3)
