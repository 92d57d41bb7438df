"""Buckets: the keys with the least padding, compared with every other choice; MXNet's rule."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from batching_reference import num_cells, slow_fewest_cells
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.plan import choose_buckets, find_buckets
from seqpack_cli.batching.selection import LengthCounts

# Few distinct lengths, so that all sets of them can be tried.
LENGTHS = st.lists(st.integers(1, 9) | st.integers(2**31 - 5, 2**31 - 1), min_size=1, max_size=40)


def choose(lengths: list[int] | np.ndarray, num_buckets: int) -> list[int]:
    """Choose buckets for rows, each with a count of one."""
    each = np.asarray(lengths)
    return choose_buckets(LengthCounts(each, np.ones_like(each)), num_buckets)


@settings(max_examples=100)
@given(LENGTHS, st.integers(1, 10))
def test_choose_buckets_needs_the_fewest_cells(lengths: list[int], num_buckets: int) -> None:
    keys = choose(lengths, num_buckets)
    assert len(keys) <= num_buckets
    assert keys == sorted(set(keys) & set(lengths))
    assert keys[-1] == max(lengths)
    assert num_cells(lengths, keys) == slow_fewest_cells(lengths, num_buckets)


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(1, 5_000), st.integers(1, 50), min_size=12, max_size=30),
    st.integers(2, 7),
)
def test_choose_buckets_agrees_with_the_quadratic_program(
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
    lengths = np.repeat(found, [num_rows[key] for key in found])
    keys = choose(lengths, num_buckets)
    assert len(keys) == num_buckets
    assert num_cells(lengths.tolist(), keys) == costs[-1]


def test_choose_buckets_beats_chosen_edges_on_a_skewed_store() -> None:
    lengths = np.random.default_rng(0).geometric(0.01, 20_000)
    cells = [
        num_cells(lengths.tolist(), choose(lengths, num_buckets)) for num_buckets in (1, 2, 4, 8)
    ]
    assert cells == sorted(cells, reverse=True)
    assert cells[0] == int(lengths.max()) * len(lengths)
    evenly = np.linspace(0, lengths.max(), 9)[1:].round().astype(int).tolist()
    assert cells[-1] < num_cells(lengths.tolist(), evenly)


def test_choose_buckets_keeps_exact_counts_beyond_64_bits() -> None:
    # Costs times rows reach 2**69 here, more than 64 bits can compare.
    lengths = 2**31 - np.array([16, 8, 4, 2, 1])
    counts = np.array([1 << 18, 5, 1 << 17, 3, 1 << 18])
    assert choose_buckets(LengthCounts(lengths, counts), 3) == [2**31 - 16, 2**31 - 4, 2**31 - 1]


def test_choose_buckets_takes_every_length_where_there_are_few() -> None:
    assert choose([7, 3, 3, 7], 8) == [3, 7]
    assert choose([5], 1) == [5]


@given(
    st.lists(st.integers(1, 40), max_size=30),
    st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted),
)
def test_find_buckets_follows_mxnet(lengths: list[int], keys: list[int]) -> None:
    # mxnet.rnn.BucketSentenceIter: buck = bisect.bisect_left(buckets, len(sentence))
    numbers = find_buckets(keys, np.array(lengths, np.int32))
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [bisect_left(keys, length) for length in lengths]
    for length, number in zip(lengths, numbers.tolist(), strict=True):
        assert [key for key in keys if key >= length] == keys[number:]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1), st.integers(1, 5))
def test_choose_buckets_counts_rows_of_one_length_together(
    runs: list[tuple[int, int]], num_buckets: int
) -> None:
    lengths, counts = np.array(runs).T  # some lengths occur more than once
    expected = choose(np.repeat(lengths, counts), num_buckets)
    assert choose_buckets(LengthCounts(lengths, counts), num_buckets) == expected
