"""Random orders: each item once, the same forever, different for each seed, and uniform."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from batching_reference import slow_shuffled
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.order import BATCHES, SEQUENCES, shuffled


@settings(max_examples=50)
@given(st.integers(0, 300), st.one_of(st.integers(0, 50), st.integers(0, 2**130)), st.booleans())
def test_shuffled_sorts_items_by_random_bits(num_items: int, seed: int, of_batches: bool) -> None:
    stream = BATCHES if of_batches else SEQUENCES
    order = shuffled(num_items, seed=seed, stream=stream)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(num_items))
    assert order.tolist() == slow_shuffled(num_items, seed=seed, stream=stream)


def test_shuffled_of_many_holds_each_once() -> None:
    order = shuffled(1 << 17, seed=3)
    assert np.array_equal(np.sort(order), np.arange(1 << 17))


def test_shuffled_never_changes() -> None:
    # Golden: continued runs and published shards need exactly these orders.
    assert shuffled(10, seed=0).tolist() == [6, 3, 8, 1, 4, 5, 9, 2, 7, 0]
    assert shuffled(10, seed=1).tolist() == [4, 6, 1, 3, 9, 8, 2, 0, 5, 7]
    assert shuffled(10, seed=0, stream=BATCHES).tolist() == [1, 3, 8, 6, 2, 0, 7, 5, 4, 9]
    assert shuffled(5, seed=2**40 + 7).tolist() == [4, 1, 3, 0, 2]


def test_shuffled_differs_by_seed_and_stream() -> None:
    seeds = [*range(50), 2**32, 2**64]
    for stream in (SEQUENCES, BATCHES):
        orders = {tuple(shuffled(64, seed=seed, stream=stream).tolist()) for seed in seeds}
        assert len(orders) == len(seeds)
    for seed in seeds:
        batches = shuffled(64, seed=seed, stream=BATCHES)
        assert shuffled(64, seed=seed).tolist() != batches.tolist()
    later = shuffled(64, seed=2**32).tolist()  # whose words begin as seed 0 with another stream
    assert later != shuffled(64, seed=0, stream=BATCHES).tolist()


def test_shuffled_refuses_a_negative_seed() -> None:
    with pytest.raises(ValueError, match=r"^seed is -1, expected at least 0$"):
        shuffled(3, seed=-1)


def test_shuffled_prefers_no_order() -> None:
    num_seeds = 4800
    counts = Counter(tuple(shuffled(4, seed=seed).tolist()) for seed in range(num_seeds))
    expected = num_seeds / 24
    chi_square = sum((counts[order] - expected) ** 2 / expected for order in permutations(range(4)))
    assert chi_square < 49.7  # 23 degrees of freedom: by chance one time in a thousand


def test_shuffled_leaves_no_trace_of_the_index() -> None:
    order = shuffled(100_000, seed=5)
    # The mean distance of a random order is a third of its length.
    assert np.abs(order - np.arange(100_000)).mean() == pytest.approx(100_000 / 3, rel=0.01)
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.01
    batches = shuffled(100_000, seed=5, stream=BATCHES)
    assert abs(np.corrcoef(order, batches)[0, 1]) < 0.01
