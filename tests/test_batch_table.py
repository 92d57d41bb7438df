"""The columns of numbers that levels need, beside each batch measured by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from batch_tables import BatchNumbers, list_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import KINDS, MAX_PIECE, Kind, draw_shard

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.verification.integers.batch_table import measure_batches

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def slow_numbers(shard: Shard, index: int, first_batch: int) -> BatchNumbers:
    batch = shard[index]
    num_filler_rows = batch.num_filler_rows if isinstance(batch, PaddedBatch) else 0
    lengths = [length for length in batch.lengths.tolist() if length > 0]
    num_sequences, num_split = len(lengths), 0
    if isinstance(batch, VarlenBatch):
        assert batch.piece_starts is not None
        num_sequences = batch.piece_starts.tolist().count(0)
        num_split = batch.piece_starts.tolist().count(MAX_PIECE)
    return BatchNumbers(
        first_batch + index,
        len(batch.lengths),
        max(lengths),
        min(lengths),
        sum(lengths),
        batch.count_padding(),
        num_filler_rows,
        num_sequences,
        num_split,
    )


@every_kind
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), first_batch=st.sampled_from([0, 1, 10**9]))
def test_numbers_are_those_of_each_batch(kind: Kind, seed: int, first_batch: int) -> None:
    shard, _ = draw_shard(kind, seed)
    generator = random.Random(seed)
    sound = [index for index in range(len(shard)) if generator.random() < 0.8]
    table = measure_batches(
        shard, np.array(sound, np.int64), first_batch=first_batch, max_tokens=MAX_PIECE
    )
    assert len(table) == len(sound)
    assert list_batches(table) == [slow_numbers(shard, index, first_batch) for index in sound]
    for name in BatchTable.__annotations__:
        assert getattr(table, name).dtype == np.int64, name


@every_kind
def test_without_a_budget_no_sequence_is_split(kind: Kind) -> None:
    shard, _ = draw_shard(kind, 5)
    every = np.arange(len(shard))
    table = measure_batches(shard, every, first_batch=0, max_tokens=None)
    assert table.add_up(table.num_split_sequences) == 0


@every_kind
def test_no_sound_batch_gives_an_empty_table(kind: Kind) -> None:
    shard, _ = draw_shard(kind, 6)
    hostile = {**shard.tensors, "lengths": np.full_like(shard.tensors["lengths"], -(2**63))}
    table = measure_batches(
        shard.with_tensors(hostile), np.empty(0, np.int64), first_batch=3, max_tokens=None
    )
    assert list_batches(table) == []


@every_kind
def test_hostile_batches_leave_the_numbers_of_sound_ones_alone(kind: Kind) -> None:
    shard, _ = draw_shard(kind, 8)
    assert len(shard) > 1
    last_rows = slice(*shard.tensors["sequence_offsets"][-2:])
    for value in (-(2**63), 2**63 - 1):
        changed = {name: array.copy() for name, array in shard.tensors.items()}
        for name in ("lengths", "original_indices", "piece_starts"):
            if name in changed:
                changed[name][last_rows] = value
        for name in ("widths", "num_filler_rows"):
            if name in changed:
                changed[name][-1] = value
        damaged = shard.with_tensors(changed)
        sound = np.flatnonzero(~damaged.find_unsound())
        assert sound.tolist() == [*range(len(shard) - 1)]
        table = measure_batches(damaged, sound, first_batch=0, max_tokens=MAX_PIECE)
        assert list_batches(table) == [slow_numbers(shard, index, 0) for index in sound.tolist()]


def measure(seed: int) -> BatchTable:
    shard, _ = draw_shard(KINDS["filler"], seed)
    return measure_batches(shard, np.arange(len(shard)), first_batch=0, max_tokens=None)


def test_tables_are_joined_one_after_another() -> None:
    tables = [measure(seed) for seed in range(3)]
    expected = [batch for table in tables for batch in list_batches(table)]
    assert list_batches(BatchTable.join(tables)) == expected
    assert list_batches(BatchTable.join([])) == []
    assert len(BatchTable.join([])) == 0
    for name in BatchTable.__annotations__:
        assert getattr(BatchTable.join([]), name).dtype == np.int64


def test_batches_are_taken_by_place_or_by_mark() -> None:
    table = measure(1)
    batches = list_batches(table)
    assert len(batches) > 1
    assert list_batches(table.take(np.array([1, 0]))) == [batches[1], batches[0]]
    assert list_batches(table.take(table.index > 0)) == batches[1:]
    assert list_batches(table.take(table.index < 0)) == []
