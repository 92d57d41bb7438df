"""All batches of a shard measured at once, compared with each batch measured by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from batch_tables import BatchNumbers, list_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import KINDS, Kind, draw_shard

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shard import Shard
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def slow_numbers(kind: Kind, shard: Shard, index: int, first_batch: int) -> BatchNumbers:
    batch = shard[index]
    num_filler_rows = batch.num_filler_rows if isinstance(batch, PaddedBatch) else 0
    lengths = [length for length in batch.lengths.tolist() if length > 0]
    num_sequences, num_split = len(lengths), 0
    if isinstance(batch, (VarlenBatch, StreamsBatch)):
        assert batch.piece_starts is not None
        num_sequences = batch.piece_starts.tolist().count(0)
        num_split = sum(0 < start <= kind.most_of_second for start in batch.piece_starts.tolist())
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
    table = shard.arrays.measure(first_batch=first_batch, max_piece=kind.most_of_second)
    assert len(table) == len(shard)
    table = table.take(np.array(sound, np.int64))
    assert list_batches(table) == [slow_numbers(kind, shard, index, first_batch) for index in sound]
    for name in BatchTable.__annotations__.keys() - {"decoder"}:
        assert getattr(table, name).dtype == np.int64, name


@every_kind
def test_without_a_budget_no_sequence_is_split(kind: Kind) -> None:
    shard, _ = draw_shard(kind, 5)
    table = shard.arrays.measure()
    assert table.add_up(table.num_split_sequences) == 0


@every_kind
def test_hostile_batches_do_not_change_the_numbers_of_sound_ones(kind: Kind) -> None:
    shard, _ = draw_shard(kind, 8, num_most=40)
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
        table = damaged.arrays.measure(max_piece=kind.most_of_second).take(sound)
        assert list_batches(table) == [
            slow_numbers(kind, shard, index, 0) for index in sound.tolist()
        ]
