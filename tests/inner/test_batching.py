"""Small functions of batching, compared with slow ones on all kinds of lengths, seeds and hashes.

The surface compares whole shards with the page's writer, which samples each of these only a little.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from batching_reference import (
    num_cells,
    slow_best_fit,
    slow_fewest_cells,
    slow_mix,
    slow_shuffled,
    slow_window_order,
)
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import flip_byte, make_store, make_texts, slow_length_order

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.order import (
    BATCHES,
    SEQUENCES,
    length_order,
    shuffled,
    sort_within_batches,
)
from seqpack_cli.batching.plan import choose_buckets
from seqpack_cli.batching.rows import best_fit
from seqpack_cli.batching.selection import LengthCounts, mix
from seqpack_cli.errors import MAX_SEED, FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Progress, Workers
from seqpack_cli.shards.pack_plan import plan_store
from seqpack_cli.shards.pack_shard import count_store
from seqpack_cli.shards.selection import Selection
from seqpack_cli.tokens.store import open_store

# Few values, so that many are equal; on both sides of 16 bits.
LENGTHS = st.lists(st.one_of(st.integers(1, 4), st.integers(65_530, 65_540), st.just(2**31 - 1)))

# Length order


@settings(max_examples=60)
@given(LENGTHS | st.lists(st.integers(1, 9), max_size=40), st.none() | st.integers(1, 45))
def test_length_order_in_windows_agrees_with_the_slow_one(
    lengths: list[int], window: int | None
) -> None:
    for dtype in (np.int32, np.int64):
        order = length_order(np.array(lengths, dtype), window=window)
        assert order.tolist() == slow_window_order(lengths, window)


@pytest.mark.parametrize("longest", [1, 65_535, 65_536, 2**31 - 1])
def test_length_order_keeps_ties_at_every_key_width(longest: int) -> None:
    lengths = np.array([1, longest, 1, longest] * 500, np.int32)
    assert length_order(lengths).tolist() == slow_length_order(lengths.tolist())


@settings(max_examples=50)
@given(
    LENGTHS | st.lists(st.integers(1, 9), max_size=40),
    st.lists(st.integers(1, 12), max_size=40),
    st.integers(1, 30),
)
def test_sort_within_batches_agrees_with_the_slow_one(
    drawn: list[int], sizes: list[int], rows_per_block: int
) -> None:
    offsets = [0]
    while offsets[-1] < len(drawn):
        size = sizes.pop() if sizes else 5
        offsets.append(min(offsets[-1] + size, len(drawn)))
    lengths, order = np.array(drawn, np.int32), np.arange(len(drawn))
    with pytest.MonkeyPatch.context() as patch:  # batches of one block, across two, beyond one
        patch.setattr(LIMITS, "rows_per_block", rows_per_block)
        sort_within_batches(order, [lengths], np.array(offsets))
    assert order.tolist() == [
        start + place
        for start, end in pairwise(offsets)
        for place in slow_length_order(drawn[start:end])
    ]
    assert lengths.tolist() == [drawn[place] for place in order]


def test_plan_reads_lengths_part_by_part_where_it_can(tmp_path: Path) -> None:
    """Of a thousand million sequences the lengths alone would take 4 GB."""
    opened = open_store(make_store(tmp_path, make_texts([3, 9, 5, 1])))
    options = PackOptions(window=3).resolve()
    plan_store(Selection(opened, options), options)
    assert "lengths" not in vars(opened)


def test_tasks_that_count_lengths_find_a_damaged_index(tmp_path: Path) -> None:
    """On Ray, where the driver reads no index."""
    path = make_store(tmp_path, make_texts([3, 4]))
    source = Selection(open_store(path), PackOptions().resolve())
    flip_byte(path / "part-00000.idx", 34)  # the length of the first sequence
    with pytest.raises(FolderError, match=r"part-00000\.idx"):
        count_store(source, Workers(HERE, Progress()))


# Buckets


def choose(lengths: np.ndarray, num_buckets: int) -> list[int]:
    """Choose buckets for rows, each with a count of one."""
    return choose_buckets(LengthCounts(lengths, np.ones_like(lengths)), num_buckets)


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 9) | st.integers(2**31 - 5, 2**31 - 1), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_chosen_buckets_need_the_fewest_cells(lengths: list[int], num_buckets: int) -> None:
    keys = choose(np.array(lengths), num_buckets)
    assert len(keys) <= num_buckets
    assert keys == sorted(set(keys) & set(lengths))
    assert num_cells(lengths, keys) == slow_fewest_cells(lengths, num_buckets)


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(1, 5_000), st.integers(1, 50), min_size=12, max_size=30),
    st.integers(2, 7),
)
def test_chosen_buckets_agree_with_the_quadratic_program(
    num_rows: dict[int, int], num_buckets: int
) -> None:
    found = sorted(num_rows)
    below = [sum(num_rows[key] for key in found[:end]) for end in range(len(found) + 1)]
    costs = [0.0, *[float("inf")] * len(found)]
    for _ in range(num_buckets):
        costs = [0.0] + [
            min(costs[i] + found[j] * (below[j + 1] - below[i]) for i in range(j + 1))
            for j in range(len(found))
        ]
    counts = [num_rows[key] for key in found]
    lengths = np.repeat(found, counts)
    keys = choose(lengths, num_buckets)
    assert len(keys) == num_buckets
    assert num_cells(lengths.tolist(), keys) == costs[-1]
    assert choose_buckets(LengthCounts(np.array(found), np.array(counts)), num_buckets) == keys


def test_chosen_buckets_are_exact_beyond_64_bits() -> None:
    # Costs times rows reach 2**69 here, more than 64 bits can compare.
    lengths = 2**31 - np.array([16, 8, 4, 2, 1])
    counts = np.array([1 << 18, 5, 1 << 17, 3, 1 << 18])
    assert choose_buckets(LengthCounts(lengths, counts), 3) == [2**31 - 16, 2**31 - 4, 2**31 - 1]


# Best fit


@st.composite
def sorted_lengths(draw: st.DrawFn) -> tuple[list[int], int]:
    """Draw lengths, longest first, many of them equal, and a capacity for them."""
    capacity = draw(st.integers(1, 40))
    runs = draw(st.lists(st.tuples(st.integers(1, capacity), st.integers(1, 12)), max_size=14))
    lengths = [length for length, count in runs for _ in range(count)]
    return sorted(lengths, reverse=True), capacity


@settings(max_examples=100)
@given(sorted_lengths(), st.sampled_from([np.int32, np.int64, np.uint16]))
def test_best_fit_agrees_with_the_slow_one(drawn: tuple[list[int], int], dtype: type) -> None:
    lengths, capacity = drawn
    bin_of = best_fit(np.array(lengths, dtype), capacity)
    assert bin_of.dtype == np.int32
    assert bin_of.tolist() == slow_best_fit(lengths, capacity)


def test_best_fit_agrees_with_the_slow_one_on_a_skewed_store() -> None:
    lengths = np.sort(np.random.default_rng(0).geometric(0.02, 1500).clip(1, 128))[::-1]
    assert best_fit(lengths, 128).tolist() == slow_best_fit(lengths.tolist(), 128)


def test_best_fit_packs_many_short_ones_without_waste() -> None:
    lengths = np.sort(np.random.default_rng(0).geometric(0.01, 200_000).clip(1, 2048))[::-1]
    filled = np.bincount(best_fit(lengths, 2048), lengths)
    assert filled.max() <= 2048
    assert len(filled) == -(-int(lengths.sum()) // 2048)


# Shuffle


@settings(max_examples=50)
@given(st.integers(0, 300), st.one_of(st.integers(0, 50), st.integers(0, 2**130)), st.booleans())
def test_shuffled_sorts_items_by_random_bits(num_items: int, seed: int, of_batches: bool) -> None:
    stream = BATCHES if of_batches else SEQUENCES
    order = shuffled(num_items, seed=seed, stream=stream)
    assert sorted(order.tolist()) == list(range(num_items))
    assert order.tolist() == slow_shuffled(num_items, seed=seed, stream=stream)


def test_shuffled_prefers_no_order() -> None:
    counts = Counter(tuple(shuffled(4, seed=seed).tolist()) for seed in range(4800))
    chi_square = sum((counts[order] - 200) ** 2 / 200 for order in permutations(range(4)))
    assert chi_square < 49.7  # 23 degrees of freedom: by chance one time in a thousand


def test_shuffled_leaves_no_trace_of_the_index() -> None:
    order = shuffled(100_000, seed=5)
    # The mean distance of a random order is a third of its length.
    assert np.abs(order - np.arange(100_000)).mean() == pytest.approx(100_000 / 3, rel=0.01)
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.01
    assert abs(np.corrcoef(order, shuffled(100_000, seed=5, stream=BATCHES))[0, 1]) < 0.01


# Hashes

NUM = 1 << 16


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=9),
    st.integers(0, MAX_SEED),
    st.sampled_from(["split", "passes", "rounds"]),
)
def test_mixed_hashes_agree_with_the_slow_ones(hashes: list[int], seed: int, purpose: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_in_cache", 4)
        mixed = mix(np.array(hashes, np.uint64), seed, purpose)
    assert mixed.tolist() == [slow_mix(each, seed, purpose) for each in hashes]


@pytest.mark.parametrize("hashes", [np.arange(NUM), np.arange(NUM) << 48], ids=["low", "high"])
def test_mixed_hashes_are_uniform_and_independent(hashes: np.ndarray) -> None:
    """Even of hashes that differ in few bits; a chi-square of 255 has a deviation of 23."""
    sorts = [("split", 0), ("passes", 0), ("rounds", 0), ("split", 1), ("passes", 2**63)]
    mixed = [mix(hashes.astype(np.uint64), seed, purpose) for purpose, seed in sorts]
    bytes_of = [
        (number >> np.uint64(shift)) & np.uint64(255) for number in mixed for shift in (56, 0)
    ]
    pairs = [
        (one >> np.uint64(60)) * np.uint64(16) + (other >> np.uint64(60))
        for one, other in combinations(mixed, 2)
    ]
    for values in bytes_of + pairs:
        counts = np.bincount(values.astype(np.int64), minlength=256)
        assert 150 < ((counts - NUM / 256) ** 2).sum() / (NUM / 256) < 370
