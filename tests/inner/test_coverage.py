"""Over all shards: each sequence as often as its store allows, a split one piece after piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.verification.integers.coverage import Coverage, find_twice

NUM_SEQUENCES = 4
Row = tuple[int, int, int]  # sequence, where in it the row begins, length
SHARDS = st.lists(
    st.lists(
        st.tuples(st.integers(0, NUM_SEQUENCES - 1), st.integers(0, 4), st.integers(1, 3)),
        min_size=1,
        max_size=4,
    ),
    max_size=4,
)


def mark(coverage: Coverage, rows: Sequence[Row]) -> tuple[int, str] | None:
    """Mark the rows of a shard that has pieces."""
    indices, starts, lengths = np.array(rows, np.int64).T
    return coverage.mark(indices, lengths, starts)


def mark_whole(coverage: Coverage, indices: Sequence[int]) -> tuple[int, str] | None:
    """Mark the rows of a shard without pieces."""
    return coverage.mark(np.array(indices, np.int64), np.ones(len(indices), np.int64), None)


def slow_pieces_follow(rows: Sequence[Row]) -> bool:
    """Return whether the rows of each split sequence are visits, from its start to one end."""
    for index in range(NUM_SEQUENCES):
        pieces = sorted((start, length) for found, start, length in rows if found == index)
        if all(start == 0 for start, _ in pieces):
            continue  # not split: standing too often is found elsewhere
        ends = [length for start, length in pieces if start == 0]
        for start, length in pieces:
            if start > 0:
                if start not in ends:
                    return False
                ends[ends.index(start)] += length
        if len(set(ends)) != 1:
            return False
    return True


@settings(max_examples=100, deadline=None)
@given(SHARDS, st.integers(1, 3))
def test_coverage_agrees_with_plain_python(shards: list[list[Row]], most: int) -> None:
    coverage = Coverage([NUM_SEQUENCES], [most])
    seen: list[int] = []
    for rows in shards:
        fault = mark(coverage, rows)
        seen += [index for index, start, _ in rows if start == 0]
        begun_here = {index for index, start, _ in rows if start == 0}
        excess = sorted(index for index in begun_here if seen.count(index) > most)
        assert (fault is not None) == bool(excess)
        if fault is not None:
            place, what = fault
            times = "once" if most == 1 else f"{most} times"
            assert what == f"sequence {excess[0]} appears more than {times}"
            assert rows[place][:2] == (excess[0], 0)
    assert coverage.num_missing == NUM_SEQUENCES - len(set(seen))
    counts = [min(seen.count(index), most + 1) for index in range(NUM_SEQUENCES)]
    assert coverage.visits.tolist() == counts
    rows = [row for rows in shards for row in rows]
    assert (coverage.check_pieces() is None) is slow_pieces_follow(rows)


def test_each_store_has_its_own_number_of_visits() -> None:
    coverage = Coverage([2, 0, 2], [1, 5, 3])
    assert mark_whole(coverage, [0, 3, 3]) is None
    assert mark_whole(coverage, [1, 3, 2]) is None
    assert mark_whole(coverage, [2, 3]) == (1, "sequence 3 appears more than 3 times")
    assert mark_whole(coverage, [0]) == (0, "sequence 0 appears more than once")


@pytest.mark.parametrize(("most", "num_bytes"), [(1, 1), (254, 1), (255, 2), (10_000, 2)])
def test_many_visits_are_counted_in_the_least_memory(most: int, num_bytes: int) -> None:
    coverage = Coverage([3], [most])
    assert coverage.visits.itemsize == num_bytes
    assert mark_whole(coverage, [1] * most) is None
    what = "sequence 1 appears more than " + ("once" if most == 1 else f"{most} times")
    assert mark_whole(coverage, [1]) == (0, what)


def test_visit_that_ends_before_another_is_named() -> None:
    coverage = Coverage([2], [2])
    mark(coverage, [(1, 0, 8), (1, 8, 8), (1, 0, 8), (0, 0, 3)])
    assert coverage.check_pieces() == "a visit of sequence 1 ends at token 8, another at 16"


def test_two_visits_in_a_batch_are_named() -> None:
    batches, indices = np.array([0, 0, 1, 1, 1]), np.array([3, 4, 3, 4, 3])
    starts = np.array([0, 0, 0, 0, 8])
    assert find_twice(batches, indices, starts) is None  # two pieces of one visit
    what = "sequence 3 appears more than once in the batch"
    assert find_twice(batches, indices, None) == (4, what)


def test_sequences_without_pieces_are_seen_once() -> None:
    coverage = Coverage([4], [1])
    assert coverage.num_missing == 4
    assert mark_whole(coverage, [3, 0]) is None
    assert mark_whole(coverage, [1]) is None
    assert coverage.num_missing == 1
    assert coverage.check_pieces() is None


@pytest.mark.parametrize("shards", [[[2, 1, 2]], [[2, 1], [0, 2]]], ids=str)
def test_sequence_that_stands_twice_is_named(shards: list[list[int]]) -> None:
    coverage = Coverage([4], [1])
    fault = [mark_whole(coverage, rows) for rows in shards][-1]
    assert fault == (len(shards[-1]) - 1, "sequence 2 appears more than once")


@pytest.mark.parametrize("index", [-1, 4, 2**62, -(2**63)])
def test_index_from_nowhere_is_named(index: int) -> None:
    coverage = Coverage([4], [1])
    fault = (1, f"original index {index} is out of range: the token store has 4 sequences")
    assert mark_whole(coverage, [1, index]) == fault
    assert mark(coverage, [(1, 0, 5), (index, 0, 5)]) == fault


def test_pieces_follow_one_another_in_any_order_over_shards() -> None:
    coverage = Coverage([3], [1])
    assert mark(coverage, [(1, 16, 3), (0, 0, 9), (1, 0, 8)]) is None
    assert mark(coverage, [(2, 0, 8), (1, 8, 8)]) is None
    assert mark(coverage, [(2, 8, 1)]) is None
    assert coverage.num_missing == 0
    assert coverage.check_pieces() is None


def test_split_sequence_counts_where_it_begins() -> None:
    coverage = Coverage([1], [1])
    mark(coverage, [(0, 8, 8), (0, 16, 1)])
    assert coverage.num_missing == 1
    mark(coverage, [(0, 0, 8)])
    assert coverage.num_missing == 0


@pytest.mark.parametrize(
    ("rows", "start", "expected"),
    [
        ([(1, 8, 8), (1, 16, 3)], 8, 0),  # no first piece
        ([(1, 0, 8), (1, 16, 3)], 16, 8),  # none in the middle
        ([(1, 0, 8), (1, 7, 8)], 7, 8),  # a token twice
        ([(1, 0, 8), (1, 9, 8)], 9, 8),  # a token left out
        ([(1, 0, 8), (1, 8, 8), (1, 8, 8)], 8, 16),  # a piece twice
        ([(1, 0, 8), (1, -3, 8)], -3, 0),
        ([(1, 0, 8), (1, 2**63 - 1, 8)], 2**63 - 1, 8),
        ([(1, 0, 8), (1, -(2**63), 8)], -(2**63), 0),
    ],
)
def test_piece_that_begins_elsewhere_is_named(rows: list[Row], start: int, expected: int) -> None:
    fault = f"a piece of sequence 1 begins at token {start}, expected one at {expected}"
    for split in range(len(rows)):  # in one shard, and in two
        coverage = Coverage([3], [1])
        for shard in (rows[:split], [(0, 0, 2), *rows[split:], (2, 0, 5)]):
            if shard:
                mark(coverage, shard)
        assert coverage.check_pieces() == fault


def test_a_store_without_sequences_is_covered() -> None:
    coverage = Coverage([0], [1])
    assert (coverage.num_missing, coverage.check_pieces()) == (0, None)
