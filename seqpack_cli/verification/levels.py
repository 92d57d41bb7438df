"""The state of a verify run, which its levels share, and the choice of batches to sample."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import MAX_SEED
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore
from seqpack_cli.verification.device import (
    name_batches,
    naming_batch,
    naming_memory,
    read_refusal,
    synchronize,
)
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.plan_comparison import PlannedShards
from seqpack_cli.verification.integers.shard_roundtrip import Roundtrip
from seqpack_cli.verification.models.attention import MAX_TOKENS
from seqpack_cli.verification.models.attention_layer import AttentionLayer, build_layer
from seqpack_cli.verification.models.computation import Comparison
from seqpack_cli.verification.models.model import CELLS, Model, ModelShape, build_model
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import LevelReport, Report

MAX_REMEMBERING_LAYERS = 5  # rounding errors of 6 layers grew to 2e-3 within 1,000 steps (measured)


@dataclass
class Verification:
    """The state of a verify run."""

    shards: ShardSet
    options: VerifyOptions
    device: torch.device
    report: Report
    progress: Progress
    # The stores, with the columns of the shards; None is possible at level `structure` only.
    store: TokenStore | None
    # The same with all columns: conditions may name others than the shards have.
    whole_store: TokenStore | None
    planned: PlannedShards | None = None  # None if no plan was made again
    coverage: Coverage | None = None  # None before level `structure`, or if that gave up
    is_store_checked: bool = False  # whether its checksums have been compared
    faulty_shards: set[int] = field(default_factory=set)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that models compute in."""
        dtype: torch.dtype = getattr(torch, self.options.dtype)
        return dtype

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

    def roundtrip(self, store: TokenStore) -> Roundtrip:
        """Return where the shards are sent, and what they are compared with."""
        return Roundtrip(
            store, self.device, self.shards.options.piece_length, self.options.max_batch_tokens
        )

    def build_models(self, *, one_direction: bool = False) -> list[Model]:
        """Build the model as torch initialises it, and one that remembers if the cell can."""
        can_remember = CELLS[self.options.cell].memory_gate is not None
        if can_remember and self.options.num_layers > MAX_REMEMBERING_LAYERS:
            can_remember = False
            note = (
                "skipped the second model, whose memory gate has a bias: "
                f"its rounding errors grow too large above {MAX_REMEMBERING_LAYERS} layers"
            )
            if note not in self.report.notes:
                self.report.notes.append(note)
        both = (False, True)[: 1 + can_remember]
        return [self.build_model(remembers=each, one_direction=one_direction) for each in both]

    def build_model(
        self,
        *,
        remembers: bool = False,
        dtype: torch.dtype | None = None,
        one_direction: bool = False,
    ) -> Model:
        """Build the model that the options ask for.

        Args:
            one_direction: whatever the options say, since a state is carried forwards only.
        """
        options = self.options
        shape = ModelShape(
            self.num_ids,
            options.cell,
            num_layers=options.num_layers,
            bidirectional=options.bidirectional and not one_direction,
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

    def judge(
        self, level: LevelReport, comparison: Comparison, shard: str, index: int, row: int | None
    ) -> None:
        """Report an error and its limit, and a finding if it is above the limit."""
        level.note_error(comparison.quantity, comparison.error, comparison.limit)
        if comparison.failed:
            self.add(Finding(level.level, shard, str(comparison), index, row))

    @contextmanager
    def computing(
        self, level: str, shard: str, index: int, *, last: int | None = None
    ) -> Iterator[None]:
        """Name a batch if the device fails; add a finding if it refuses only this batch.

        Args:
            last: of several batches that are computed together, from index on.
        """
        unfinished = ""
        if last is not None:
            unfinished = name_batches((shard, index), (self.shards.find_name(last), last))
        with naming_batch(shard, index, unfinished=unfinished):
            try:
                yield
            except RuntimeError as error:
                refusal = read_refusal(error)
                if refusal is None:
                    raise
                synchronize(self.device)  # fails if the device can compute nothing any more
                self.add(Finding(level, shard, refusal, index))

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
