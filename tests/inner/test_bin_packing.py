"""Best fit decreasing, compared with a loop that puts one sequence after another into a bin."""

from __future__ import annotations

import numpy as np
from batching_reference import slow_best_fit
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.rows import best_fit


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
    drawn = np.random.default_rng(0).geometric(0.02, 1500).clip(1, 128)
    lengths = np.sort(drawn)[::-1]
    assert best_fit(lengths, 128).tolist() == slow_best_fit(lengths.tolist(), 128)


@settings(max_examples=60)
@given(sorted_lengths())
def test_best_fit_keeps_to_the_capacity_and_opens_no_bin_too_many(
    drawn: tuple[list[int], int],
) -> None:
    lengths, capacity = drawn
    bin_of = best_fit(np.array(lengths, np.int64), capacity)
    filled = np.bincount(bin_of, lengths).astype(int).tolist()
    assert all(1 <= num_tokens <= capacity for num_tokens in filled)
    # No two bins may fit into one.
    assert sum(num_tokens * 2 <= capacity for num_tokens in filled) <= 1
    fewest = -(-sum(lengths) // capacity)
    assert fewest <= len(filled) <= max(2 * fewest - 1, 0)


def test_best_fit_takes_the_fullest_bin_and_of_equals_the_first() -> None:
    # 6 and 5 leave rooms of 4 and 5: the 4 goes to the smaller room, the 3 to the other.
    assert best_fit(np.array([6, 5, 4, 3, 2]), 10).tolist() == [0, 1, 0, 1, 1]
    # Bins 0, 1 and 2 have room for 4 each.
    assert best_fit(np.array([6, 6, 6, 4, 3, 1]), 10).tolist() == [0, 1, 2, 0, 1, 1]


def test_best_fit_takes_the_bin_that_has_had_its_room_longest() -> None:
    # Of 20 tokens: the 6 leaves bin 1 a room of 1, then the 4 leaves bin 0 the same.
    assert best_fit(np.array([15, 13, 6, 4, 1]), 20).tolist() == [0, 1, 1, 0, 1]


def test_best_fit_of_nothing_has_no_bin() -> None:
    assert best_fit(np.empty(0, np.int32), 5).tolist() == []


def test_best_fit_packs_many_short_ones_without_waste() -> None:
    lengths = np.sort(np.random.default_rng(0).geometric(0.01, 200_000).clip(1, 2048))[::-1]
    bin_of = best_fit(lengths, 2048)
    filled = np.bincount(bin_of, lengths)
    assert filled.max() <= 2048
    assert len(filled) == -(-int(lengths.sum()) // 2048)
