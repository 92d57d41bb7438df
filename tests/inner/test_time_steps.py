"""Many batches laid out together, compared with one at a time in plain Python."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import slow_pack

from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import time_steps
from seqpack_cli.shards.time_steps import count_steps, iter_steps, place_rows

BATCHES = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=10), min_size=1, max_size=5)


def draw_batches(lengths: list[list[int]]) -> list[list[np.ndarray]]:
    """Draw the rows of several batches, each longest first."""
    draws = np.random.default_rng([7, *map(sum, lengths)])
    return [
        [draws.integers(0, 2**16, n).astype(np.uint16) for n in sorted(batch, reverse=True)]
        for batch in lengths
    ]


@settings(max_examples=60)
@given(BATCHES, st.integers(1, 9), st.integers(1, 4), st.randoms(use_true_random=False))
def test_rows_from_anywhere_are_read_in_pieces_of_whole_time_steps(
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
    packed = [slow_pack(batch) for batch in batches]
    assert np.concatenate(pieces).tolist() == [id_ for found, _ in packed for id_ in found]
    assert batch_sizes.tolist() == [size for _, sizes in packed for size in sizes]
    ends = set(np.cumsum(batch_sizes).tolist())
    assert set(np.cumsum([len(piece) for piece in pieces]).tolist()) <= ends
    widest = int(batch_sizes.max())  # a single step may be more than a piece
    assert max(map(len, pieces)) <= max(ids_per_piece, widest)


def test_rows_of_equal_length_do_not_share_cache_lines() -> None:
    """Which took three times as long."""
    longest = time_steps.ALIASING
    lengths = np.array([longest] * 12 + [longest, longest - 1, longest - 1, 300, 1, 1])
    distances = np.diff(place_rows(lengths, np.arange(0, 19, 3)))
    assert (distances >= lengths).all() and set(distances[:14]) <= {longest, longest + 32}
    assert set(distances[15:]) == {300, 1}  # gaps would take too much
