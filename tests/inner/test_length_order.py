"""Length order: longest first, ties by index, over all sequences, in windows and in batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from batching_reference import slow_window_order
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import slow_length_order
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from seqpack_cli.batching.order import length_order, sort_within_batches
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards import packed

# Few values, so that many are equal; on both sides of 16 bits.
LENGTHS = st.lists(st.one_of(st.integers(1, 4), st.integers(65_530, 65_540), st.just(2**31 - 1)))


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.sampled_from([np.int32, np.int64]))
def test_length_order_agrees_with_the_slow_one(lengths: list[int], dtype: type) -> None:
    order = length_order(np.array(lengths, dtype))
    assert order.tolist() == slow_length_order(lengths)
    assert order.dtype == np.int64


@settings(max_examples=50, deadline=None)
@given(
    LENGTHS | st.lists(st.integers(1, 9), max_size=40),
    st.integers(1, 45),
    st.sampled_from([np.int32, np.int64]),
)
def test_length_order_in_windows_agrees_with_the_slow_one(
    lengths: list[int], window: int, dtype: type
) -> None:
    order = length_order(np.array(lengths, dtype), window=window)
    assert order.tolist() == slow_window_order(lengths, window)
    assert order.dtype == np.int64


def test_length_order_leaves_a_short_window_at_the_end() -> None:
    lengths = np.array([1, 2, 3, 70_000, 5, 6, 7])
    assert length_order(lengths, window=3).tolist() == [2, 1, 0, 3, 5, 4, 6]
    assert length_order(lengths, window=1).tolist() == list(range(7))
    assert length_order(lengths, window=7).tolist() == length_order(lengths).tolist()


@settings(max_examples=50, deadline=None)
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
    lengths = np.array(drawn, np.int32)
    order = np.arange(len(drawn))[::-1].copy()
    with pytest.MonkeyPatch.context() as patch:  # batches of one block, across two, beyond one
        patch.setattr(LIMITS, "rows_per_block", rows_per_block)
        sort_within_batches(order, [lengths], np.array(offsets))
    places = [
        start + place
        for start, end in pairwise(offsets)
        for place in slow_length_order(drawn[start:end])
    ]
    assert order.tolist() == [len(drawn) - 1 - place for place in places]
    assert lengths.tolist() == [drawn[place] for place in places]


@pytest.mark.parametrize("longest", [1, 65_535, 65_536, 2**31 - 1])
def test_length_order_keeps_ties_at_every_key_width(longest: int) -> None:
    lengths = np.array([1, longest, 1, longest] * 500, np.int32)
    assert length_order(lengths).tolist() == slow_length_order(lengths.tolist())


def test_length_order_of_nothing_is_empty() -> None:
    order = length_order(np.empty(0, np.int32))
    assert order.tolist() == []
    assert order.dtype == np.int64


def test_length_order_is_stable_where_torch_is_not() -> None:
    lengths = np.array([1, 2] * 40)
    assert length_order(lengths).tolist() == [*range(1, 80, 2), *range(0, 80, 2)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_length_order_and_pack_hold_the_sequences_torch_holds(lengths: list[int]) -> None:
    rows = [np.arange(length) + 100 * index for index, length in enumerate(lengths)]
    order = length_order(np.array(lengths))
    ours = packed.pack_sequence([rows[index] for index in order])
    theirs = pack_sequence([torch.from_numpy(row) for row in rows], enforce_sorted=False)
    # torch may order ties differently: batch_sizes agree, and each step has the same ids
    assert ours.batch_sizes.tolist() == theirs.batch_sizes.tolist()
    own_rows = dict(zip(order.tolist(), (row.tolist() for row in ours.rows()), strict=True))
    assert [own_rows[index] for index in range(len(rows))] == [
        row.tolist() for row in unpack_sequence(theirs)
    ]
