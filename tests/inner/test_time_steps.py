"""Many batches laid out together, compared with one at a time in plain Python and by torch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import slow_pack
from torch.nn.utils.rnn import pack_sequence

from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import time_steps
from seqpack_cli.shards.time_steps import count_steps, iter_steps, pack_batches, place_rows

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=10)
BATCHES = st.lists(LENGTHS, min_size=1, max_size=5)


def draw_batches(lengths: list[list[int]]) -> list[list[np.ndarray]]:
    """Draw the rows of several batches, each longest first."""
    draws = np.random.default_rng([7, *map(sum, lengths)])
    return [
        [draws.integers(0, 2**16, n).astype(np.uint16) for n in sorted(batch, reverse=True)]
        for batch in lengths
    ]


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.sampled_from([1, 2, 5, 1 << 16]), st.sampled_from([1, 3, 2048]))
def test_pack_batches_packs_each_batch_as_the_slow_one_and_torch_do(
    lengths: list[list[int]], ids_per_piece: int, ids_per_copy: int
) -> None:
    batches = draw_batches(lengths)
    rows = [row for batch in batches for row in batch]
    all_lengths = np.array([len(row) for row in rows])
    offsets = np.cumsum([0, *map(len, batches)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "ids_per_piece", ids_per_piece)
        patch.setattr(LIMITS, "entries_in_cache", 3)
        patch.setattr(LIMITS, "ids_per_copy", ids_per_copy)
        patch.setattr(LIMITS, "ids_per_run", 1)
        data, batch_sizes, step_offsets = pack_batches(np.concatenate(rows), all_lengths, offsets)
    assert (data.dtype, batch_sizes.dtype) == (np.uint16, np.int64)
    assert len(step_offsets) == len(batches) + 1
    ids = np.split(data, np.cumsum([sum(map(len, batch)) for batch in batches])[:-1])
    for number, batch in enumerate(batches):
        found = batch_sizes[step_offsets[number] : step_offsets[number + 1]]
        assert (ids[number].tolist(), found.tolist()) == slow_pack(batch)
        theirs = pack_sequence([torch.from_numpy(row.astype(np.int64)) for row in batch])
        assert ids[number].tolist() == theirs.data.tolist()
        assert found.tolist() == theirs.batch_sizes.tolist()


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.integers(1, 9), st.integers(1, 4), st.randoms(use_true_random=False))
def test_iter_steps_reads_rows_from_anywhere_in_whole_time_steps(
    lengths: list[list[int]], ids_per_piece: int, ids_per_copy: int, random: Random
) -> None:
    batches = draw_batches(lengths)
    rows = [row for batch in batches for row in batch]
    ids, starts = np.full(3, 99, np.uint16), np.zeros(len(rows), np.int64)
    for place in random.sample(range(len(rows)), len(rows)):  # rows in any order, with gaps
        starts[place] = len(ids)
        ids = np.concatenate([ids, rows[place], np.full(random.randrange(3), 99, np.uint16)])
    offsets = np.cumsum([0, *map(len, batches)])
    batch_sizes, step_offsets = count_steps(np.array([len(row) for row in rows]), offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "ids_per_piece", ids_per_piece)
        patch.setattr(LIMITS, "ids_per_copy", ids_per_copy)
        patch.setattr(LIMITS, "ids_per_run", 1)
        pieces = list(iter_steps(ids, starts, offsets, batch_sizes, step_offsets))
    assert np.concatenate(pieces).tolist() == [
        id_ for batch in batches for id_ in slow_pack(batch)[0]
    ]
    ends = set(np.cumsum(batch_sizes).tolist())
    assert set(np.cumsum([len(piece) for piece in pieces]).tolist()) <= ends
    widest = int(batch_sizes.max())  # a single step may be more than a piece
    assert max(map(len, pieces)) <= max(ids_per_piece, widest)


@pytest.mark.parametrize("ids_per_copy", [1, 512])
@pytest.mark.parametrize("longest", [9, time_steps.ALIASING])
def test_iter_steps_turns_equal_and_uneven_batches_over(longest: int, ids_per_copy: int) -> None:
    batches = draw_batches([[longest] * 3] * 4 + [[longest, longest - 1, longest - 1], [300, 1, 1]])
    rows = [row for batch in batches for row in batch]
    lengths, offsets = np.array([len(row) for row in rows]), np.arange(0, 19, 3)
    starts = place_rows(lengths, offsets)
    distances = np.diff(starts)
    assert (distances >= lengths).all() and set(distances[:14]) <= {longest, longest + 32}
    assert set(distances[15:]) == {300, 1}  # gaps would take too much
    ids = np.zeros(starts[-1], np.uint16)
    for start, row in zip(starts[:-1].tolist(), rows, strict=True):
        ids[start : start + len(row)] = row
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "ids_per_copy", ids_per_copy)
        patch.setattr(LIMITS, "ids_per_run", 1)
        pieces = list(iter_steps(ids, starts[:-1], offsets, *count_steps(lengths, offsets)))
    assert np.concatenate(pieces).tolist() == [
        id_ for batch in batches for id_ in slow_pack(batch)[0]
    ]


def test_count_steps_takes_batches_one_after_another() -> None:
    batch_sizes, step_offsets = count_steps(np.array([3, 1, 2, 2, 1]), np.array([0, 2, 4, 5]))
    assert batch_sizes.tolist() == [2, 1, 1, 2, 2, 1]
    assert step_offsets.tolist() == [0, 3, 5, 6]
