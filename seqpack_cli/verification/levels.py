"""The state of a verify run, and the levels that compare integers: `structure` and `roundtrip`.

A level is a function that takes batches, adds its findings to the report, and returns the batches
of the shards without a finding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.errors import MAX_SEED
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.runs.progress import Progress
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.open_store import AnyStore
from seqpack_cli.verification.device import naming_batch, naming_memory
from seqpack_cli.verification.integers.batch_roundtrip import check_batch, compare_manifests
from seqpack_cli.verification.integers.column_values import compare_columns
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.plan_comparison import PlannedShards, plan_again
from seqpack_cli.verification.integers.shard_roundtrip import (
    ID_CELLS_PER_TOKEN,
    Roundtrip,
    check_shard,
)
from seqpack_cli.verification.integers.structure import check_structure
from seqpack_cli.verification.models.attention import MAX_TOKENS
from seqpack_cli.verification.models.attention_layer import AttentionLayer, build_layer
from seqpack_cli.verification.models.model import Model, ModelShape, build_model
from seqpack_cli.verification.report import Finding, LevelReport, Report
from seqpack_cli.verification.verify_options import DTYPES, VerifyOptions


@dataclass
class Verification:
    """The state of a verify run."""

    shards: ShardSet
    options: VerifyOptions
    device: torch.device
    report: Report
    progress: Progress
    # The stores, with the columns of the shards; None is possible at level `structure` only.
    store: AnyStore | None
    # The same with all columns: conditions may name others than the shards have.
    whole_store: AnyStore | None
    planned: PlannedShards | None = None  # None if no plan was made again
    coverage: Coverage | None = None  # None before level `structure`, or if that gave up
    is_store_checked: bool = False  # whether its checksums have been compared
    faulty_shards: set[int] = field(default_factory=set)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that models compute in."""
        return DTYPES[self.options.dtype]

    @property
    def max_attention_tokens(self) -> int:
        """The most tokens of a varlen row that attention is computed for."""
        return min(self.options.max_batch_tokens, MAX_TOKENS[self.device.type])

    @property
    def num_ids(self) -> int:
        """The number of different ids, which is the number of embeddings."""
        return int(self.shards.manifest["max_id"]) + 1

    @property
    def repeats_sequences(self) -> bool:
        """Whether sequences may be packed several times."""
        return self.coverage is not None and self.coverage.has_repeats

    def add(self, finding: Finding) -> None:
        """Add a finding to the report; later levels leave its shard out."""
        self.report.findings.append(finding)
        if finding.batch is not None:
            self.faulty_shards.add(self.shards.find(finding.batch)[0])

    def keep_faultless(self, batches: BatchTable) -> BatchTable:
        """Return the batches of shards without a finding."""
        return batches.take(~np.isin(self.find_shards(batches), sorted(self.faulty_shards)))

    def find_shards(self, batches: BatchTable) -> np.ndarray:
        """Return the number of each batch's shard."""
        return np.searchsorted(self.shards.batch_offsets, batches.index, "right") - 1

    def sample(self, batches: BatchTable) -> list[int]:
        """Choose the batches that `--sample` asks for, by index."""
        return choose_batches(batches, num_batches=self.options.sample, seed=self.options.seed)

    def read(self, index: int) -> tuple[str, Batch]:
        """Return the name of a batch's shard, and the batch."""
        number, inside = self.shards.find(index)
        shard = self.shards.open_shard(number)
        return shard.path.name, shard[inside]

    def roundtrip(self, store: AnyStore) -> Roundtrip:
        """Return where the shards are sent, and what they are compared with."""
        return Roundtrip(
            store, self.device, self.shards.options.max_tokens, self.options.max_batch_tokens
        )

    def build_model(self, *, remembers: bool = False, dtype: torch.dtype | None = None) -> Model:
        """Build the model that the options ask for."""
        options = self.options
        shape = ModelShape(
            self.num_ids,
            options.cell,
            num_layers=options.num_layers,
            bidirectional=options.bidirectional,
            hidden_size=options.hidden_size,
            remembers=remembers,
        )
        with naming_memory(f"--device {options.device}: model with {self.num_ids:,} embeddings"):
            return build_model(
                shape, device=self.device, dtype=dtype or self.dtype, seed=options.seed
            )

    def build_attention(self, *, dtype: torch.dtype | None = None) -> AttentionLayer:
        """Build the attention layer for varlen rows."""
        return build_layer(
            num_embeddings=self.num_ids,
            device=self.device,
            dtype=dtype or self.dtype,
            seed=self.options.seed,
        )

    def make_generator(self, index: int = 0) -> torch.Generator:
        """Return the random generator of a batch; seed and index are added modulo 2**64."""
        return torch.Generator().manual_seed((self.options.seed + index) % (MAX_SEED + 1))

    @contextmanager
    def level(self, name: str) -> Iterator[LevelReport]:
        """Add a level to the report and time it."""
        level = LevelReport(name)
        self.report.levels.append(level)
        started = time.monotonic()
        yield level
        level.seconds = round(time.monotonic() - started, 3)


def choose_batches(batches: BatchTable, *, num_batches: int | None, seed: int) -> list[int]:
    """Choose the batches that a level computes.

    Args:
        num_batches: how many at most; None takes all.
        seed: for those chosen at random.

    Returns:
        Indices in rising order. As far as num_batches allows, they include the batch with the most
        uneven rows, the one with the longest sequence, the one with the fewest rows, the shortest
        one, and one of several rows of equal length, which torch computes on another path.
    """
    if num_batches is None or num_batches >= len(batches):
        return [int(index) for index in batches.index]
    rows = batches.num_real_rows
    unevenness = batches.longest - batches.shortest
    special = [
        unevenness.argmax(),
        batches.longest.argmax(),
        rows.argmin(),
        batches.longest.argmin(),
        ((unevenness == 0) & (rows > 1)).argmax(),
    ]
    chosen = list(dict.fromkeys(int(place) for place in special))[:num_batches]
    others = np.delete(np.arange(len(batches)), chosen)
    num_random = num_batches - len(chosen)
    drawn = np.random.default_rng(seed).choice(others, size=num_random, replace=False)
    places = np.sort(np.concatenate([np.array(chosen, np.int64), drawn]))
    return [int(index) for index in batches.index[places]]


def verify_structure(run: Verification) -> BatchTable:
    """Check the files and arrays of every batch, and that it is the planned one."""
    with run.level("structure") as level:
        source, refusals = None, list[Finding]()
        if run.whole_store is not None:
            source, run.planned, refusals = plan_again(
                run.shards, run.whole_store, is_planned=run.report.plan.compared
            )
        findings, batches, run.coverage = check_structure(run.shards, level, source, run.planned)
        for finding in [*refusals, *findings]:
            run.add(finding)
        if run.store is not None:
            _check_columns(run, run.store)
    return run.keep_faultless(batches)


def _check_columns(run: Verification, store: AnyStore) -> None:
    """Compare the columns that the manifest of the shards names with those of the token store."""
    for what in compare_columns(run.shards.columns, store.columns):
        run.add(Finding("structure", MANIFEST_NAME, what))
        run.faulty_shards.update(range(run.shards.num_shards))  # they share the manifest


def verify_roundtrip(run: Verification, batches: BatchTable, store: AnyStore) -> BatchTable:
    """Send every id through the device; check a sample with torch's row-by-row functions too.

    Raises:
        FolderError: the token store is damaged.
    """
    roundtrip, max_tokens = run.roundtrip(store), run.shards.options.max_tokens
    num_passes = 1 + sum(column.is_per_token for column in run.shards.columns.values())
    run.progress.on_total(int(batches.num_tokens.sum()) * num_passes)
    with run.level("roundtrip") as level:
        if not run.is_store_checked:
            store.check_digest()
        for what in compare_manifests(run.shards.manifest, store):
            run.add(Finding("roundtrip", MANIFEST_NAME, what))
            run.faulty_shards.update(range(run.shards.num_shards))  # they share the manifest
        for number in np.unique(run.find_shards(batches)).tolist():
            shard = run.shards.open_shard(number)
            for finding in check_shard(shard, roundtrip, on_advance=run.progress.on_advance):
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
                for row, what in check_batch(batch, store, run.device, max_tokens=max_tokens):
                    run.add(Finding("roundtrip", name, what, index, row))
        level.num_sampled_batches = len(chosen)
    return run.keep_faultless(batches)


def _count_values(shards: ShardSet, batches: BatchTable) -> int:
    """Count the values of all columns of some batches, without filler and padding."""
    counts = (
        batches.num_tokens if column.is_per_token else batches.num_real_rows
        for column in shards.columns.values()
    )
    return sum(int(count.sum()) for count in counts)
