"""Where batches are cut, compared with a loop that adds one row after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import batch_cost, slow_cut

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.limits import Limits
from seqpack_cli.limits import LIMITS

LENGTHS = st.lists(st.integers(1, 20), max_size=40)


def cut(lengths: list[int], **limits: int | bool | None) -> list[list[int]]:
    """Cut with the fast code; return the lengths of each batch."""
    offsets = Limits(**limits).cut(np.array(lengths, np.int32))  # type: ignore[arg-type]
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(lengths)
    return [lengths[start:end] for start, end in pairwise(offsets.tolist())]


@settings(max_examples=60, deadline=None)
@given(
    LENGTHS,
    st.one_of(st.none(), st.integers(1, 9)),
    st.one_of(st.none(), st.integers(20, 90)),
    st.booleans(),
    st.booleans(),
)
def test_cut_agrees_with_the_slow_one(
    lengths: list[int],
    batch_size: int | None,
    max_tokens: int | None,
    padded: bool,
    in_length_order: bool,
) -> None:
    if batch_size is None and max_tokens is None:
        batch_size = 5
    if in_length_order:
        lengths = sorted(lengths, reverse=True)
    limits = {"batch_size": batch_size, "max_tokens": max_tokens, "padded": padded}
    assert cut(lengths, **limits) == slow_cut(lengths, **limits)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(20, 90), st.booleans())
def test_cut_keeps_to_the_budget_and_fills_it(
    lengths: list[int], max_tokens: int, padded: bool
) -> None:
    batches = cut(lengths, batch_size=None, max_tokens=max_tokens, padded=padded)
    assert [length for batch in batches for length in batch] == lengths
    assert all(batch_cost(batch, padded=padded) <= max_tokens for batch in batches)
    for batch, following in pairwise(batches):
        assert batch_cost([*batch, following[0]], padded=padded) > max_tokens


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 9), st.integers(20, 90), st.booleans(), st.integers(1, 7))
def test_cut_is_the_same_in_blocks_of_any_size(
    lengths: list[int], batch_size: int, max_tokens: int, padded: bool, rows_per_block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "sequences_per_block", rows_per_block)
        made = cut(lengths, batch_size=batch_size, max_tokens=max_tokens, padded=padded)
    assert made == slow_cut(lengths, batch_size=batch_size, max_tokens=max_tokens, padded=padded)


def test_cut_counts_rows_tokens_or_cells() -> None:
    lengths = [4, 3, 3, 1]
    assert cut(lengths, batch_size=3) == [[4, 3, 3], [1]]
    assert cut(lengths, batch_size=None, max_tokens=7) == [[4, 3], [3, 1]]
    assert cut(lengths, batch_size=None, max_tokens=7, padded=True) == [[4], [3, 3], [1]]
    assert cut(lengths, batch_size=1, max_tokens=7) == [[4], [3], [3], [1]]


def test_cut_counts_a_longer_row_after_a_short_one() -> None:
    assert cut([1, 1, 9, 1], batch_size=None, max_tokens=10, padded=True) == [[1, 1], [9], [1]]


def test_cut_does_not_overflow_32_bits() -> None:
    lengths = [2**30] * 6
    assert cut(lengths, batch_size=None, max_tokens=2**32) == [lengths[:4], lengths[4:]]
    assert cut(lengths, batch_size=None, max_tokens=2**32, padded=True) == [
        lengths[:4],
        lengths[4:],
    ]


def test_cut_of_nothing_is_no_batch() -> None:
    for limits in ({"batch_size": 3}, {"batch_size": None, "max_tokens": 3}):
        assert cut([], **limits) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=9),
    st.one_of(st.none(), st.integers(9, 10)),
    st.one_of(st.none(), st.integers(1, 200)),
    st.booleans(),
)
def test_is_full_says_whether_one_more_token_fits(
    lengths: list[int], batch_size: int | None, max_tokens: int | None, padded: bool
) -> None:
    one_more = [*lengths, 1]
    fits = batch_size is None or len(one_more) <= batch_size
    fits &= max_tokens is None or batch_cost(one_more, padded=padded) <= max_tokens
    batch = BatchTable.of_batches(np.array(lengths), np.array([0, len(lengths)]))
    assert Limits(batch_size, max_tokens, padded).is_full(batch) is not fits


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 30)), max_size=6),
    st.one_of(st.none(), st.integers(1, 7), st.integers(1, 90)),
    st.one_of(st.none(), st.integers(20, 25), st.integers(20, 200)),
    st.booleans(),
)
def test_cut_runs_cuts_as_their_sequences_are_cut(
    runs: list[tuple[int, int]], batch_size: int | None, max_tokens: int | None, padded: bool
) -> None:
    if batch_size is None and max_tokens is None:
        batch_size = 5
    runs.sort(reverse=True)  # a length may occur twice
    lengths, counts = np.array(runs, np.int64).reshape(-1, 2).T
    limits = Limits(batch_size, max_tokens, padded)
    expected = limits.cut(np.repeat(lengths, counts))
    found = limits.cut_runs(lengths, counts)
    assert found.dtype == np.int64
    starts = [
        start + number * num_rows
        for start, num_rows, count in found.T.tolist()
        for number in range(count)
    ]
    assert [*starts, int(counts.sum())] == expected.tolist()
    ends = np.cumsum(counts)
    for start, num_rows, count in found.T.tolist():
        # Equal batches hold sequences of one run.
        last = start + num_rows * count - 1
        assert count == 1 or np.ptp(np.searchsorted(ends, [start, last], "right")) == 0


def test_cut_runs_takes_the_time_of_the_runs() -> None:
    many = np.array([10**12, 10**12])
    found = Limits(batch_size=64).cut_runs(np.array([7, 3]), many)
    assert found.tolist() == [
        [0, 10**12 - 64, 10**12, 2 * 10**12 - 64],
        [64, 64, 64, 64],
        [10**12 // 64 - 1, 1, 10**12 // 64 - 1, 1],
    ]
