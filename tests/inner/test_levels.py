"""Which batches the float levels run."""

from __future__ import annotations

import pytest
from batch_tables import BatchNumbers, make_table
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.verification.levels import choose_batches


def statistics(index: int, num_rows: int, longest: int, shortest: int) -> BatchNumbers:
    return BatchNumbers(index, num_rows, longest, shortest, num_rows * shortest, 0)


# 2 has the longest, 4 is the most uneven, 6 has one row, 8 is the shortest
BATCHES = [
    statistics(1, 5, 30, 25),
    statistics(2, 5, 50, 49),
    statistics(3, 5, 30, 25),
    statistics(4, 5, 40, 2),
    statistics(6, 1, 20, 20),
    statistics(7, 5, 30, 25),
    statistics(8, 5, 3, 3),
    statistics(9, 5, 30, 25),
]


def test_all_batches_are_chosen_when_asked_for_or_few() -> None:
    every = [batch.index for batch in BATCHES]
    for num_batches in (None, 8, 9):
        assert choose_batches(make_table(BATCHES), num_batches=num_batches, seed=0) == every
    assert choose_batches(make_table([]), num_batches=3, seed=0) == []


@pytest.mark.parametrize("seed", range(5))
def test_the_telling_batches_are_always_among_the_chosen(seed: int) -> None:
    assert choose_batches(make_table(BATCHES), num_batches=4, seed=seed) == [2, 4, 6, 8]
    chosen = choose_batches(make_table(BATCHES), num_batches=6, seed=seed)
    assert {2, 4, 6, 8} < set(chosen)


def test_the_most_telling_come_first_when_there_is_little_room() -> None:
    assert choose_batches(make_table(BATCHES), num_batches=1, seed=0) == [4]
    assert choose_batches(make_table(BATCHES), num_batches=2, seed=0) == [2, 4]
    assert choose_batches(make_table(BATCHES), num_batches=0, seed=0) == []


def test_the_seed_decides_the_random_ones() -> None:
    many = [statistics(index, 5, 30, 25) for index in range(100)]
    first, again, other = (
        choose_batches(make_table(many), num_batches=20, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(0, 19)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 25),
    st.integers(0, 3),
)
def test_so_many_batches_are_chosen_once_in_rising_order(
    rows: list[tuple[int, int, int]], num_batches: int, seed: int
) -> None:
    batches = [
        statistics(10 + index, num_rows, longest, max(1, longest - spread))
        for index, (num_rows, longest, spread) in enumerate(rows)
    ]
    chosen = choose_batches(make_table(batches), num_batches=num_batches, seed=seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(num_batches, len(batches))
    assert set(chosen) <= {batch.index for batch in batches}
    assert all(type(index) is int for index in chosen)


def test_single_row_beside_filler_is_a_single_row() -> None:
    batches = [
        BatchNumbers(0, 4, 50, 10, 120, 80),
        BatchNumbers(1, 4, 40, 1, 90, 70),
        BatchNumbers(2, 4, 20, 20, 20, 60, num_filler_rows=3),
        BatchNumbers(3, 4, 3, 3, 12, 0),
        *[BatchNumbers(index, 4, 30, 25, 110, 10) for index in range(4, 40)],
    ]
    assert choose_batches(make_table(batches), num_batches=3, seed=0) == [0, 2, 3]
