"""Ranges: the indices they cover, and copies of many at once, beside loops over entries."""

from __future__ import annotations

import numpy as np
import pytest
from batching_reference import slow_copy
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import copy_ranges, expand_ranges


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9))))
def test_expand_ranges_is_the_loop(drawn: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(drawn, np.int64).reshape(-1, 2).T
    indices = expand_ranges(starts, lengths.astype(np.int32))
    assert indices.dtype == np.int64
    assert indices.tolist() == [
        index for start, length in drawn for index in range(start, start + length)
    ]


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], int, int]:
    """Ranges (where from, where to, length), and the sizes of both arrays.

    Sources may overlap or follow each other; targets have gaps or none, in any order.
    """
    num_ranges = draw(st.integers(0, 12))
    longest = draw(st.sampled_from([1, 5, 40, 400]))
    lengths = draw(st.lists(st.integers(0, longest), min_size=num_ranges, max_size=num_ranges))
    follows = draw(st.lists(st.booleans(), min_size=num_ranges, max_size=num_ranges))
    starts = draw(st.lists(st.integers(0, 200), min_size=num_ranges, max_size=num_ranges))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 7]), min_size=num_ranges, max_size=num_ranges))
    for number in range(1, num_ranges):
        if follows[number]:
            starts[number] = starts[number - 1] + lengths[number - 1]
    targets = []
    end = 0
    for gap, length in zip(gaps, lengths, strict=True):
        targets.append(end + gap)
        end += gap + length
    drawn = list(zip(starts, targets, lengths, strict=True))
    if draw(st.booleans()):
        drawn = draw(st.permutations(drawn))
    num_source = max((start + length for start, _, length in drawn), default=0)
    return drawn, num_source + draw(st.integers(0, 3)), end + draw(st.integers(0, 3))


@settings(max_examples=120)
@given(copies(), st.sampled_from([1, 6, 60, 1 << 16]), st.sampled_from([1, 6, 128]))
def test_copy_ranges_is_the_loop_in_blocks_of_any_size(
    drawn: tuple[list[tuple[int, int, int]], int, int], entries: int, long_range: int
) -> None:
    """What no range covers stays as it is."""
    ranges, num_source, num_target = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_per_block", entries)
        patch.setattr(LIMITS, "sequences_per_block", entries)
        patch.setattr(LIMITS, "long_range", long_range)
        for dtype in (np.uint16, np.int64):  # another than the target's, and the same
            source, target = (
                np.arange(1, num_source + 1, dtype=dtype),
                -np.arange(1, num_target + 1),
            )
            expected = slow_copy(source.tolist(), target.tolist(), ranges)
            columns = np.array(ranges, np.int64).reshape(-1, 3).T
            copy_ranges(source, columns[0], target, columns[1], columns[2])
            assert target.tolist() == expected


def test_copy_ranges_copies_more_than_a_block() -> None:
    num_ranges = LIMITS.entries_per_block // 4
    order = np.random.default_rng(0).permutation(num_ranges)
    source = np.arange(num_ranges * 10)
    lengths = np.full(num_ranges, 10)
    target = np.zeros_like(source)
    copy_ranges(source, order * 10, target, np.arange(num_ranges) * 10, lengths)
    assert np.array_equal(target.reshape(-1, 10), source.reshape(-1, 10)[order])
    back = np.zeros_like(source)
    copy_ranges(target, np.arange(num_ranges) * 10, back, order * 10, lengths)
    assert np.array_equal(back, source)
