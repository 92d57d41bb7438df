"""Length order: longest first, ties by index, whatever the integers' type."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import slow_length_order
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from seqpack_cli.batching.length_order import length_order
from seqpack_cli.shards.packed import pack


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 4), st.integers(65_530, 65_540), st.just(2**31 - 1))),
    st.sampled_from([np.int32, np.int64]),
)
def test_length_order_is_the_slow_one(lengths: list[int], dtype: type) -> None:
    order = length_order(np.array(lengths, dtype))
    assert order.tolist() == slow_length_order(lengths)
    assert order.dtype == np.int64


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
    ours = pack([rows[index] for index in order])
    theirs = pack_sequence([torch.from_numpy(row) for row in rows], enforce_sorted=False)
    # torch orders ties as it likes: batch_sizes agree, and at each step the same ids in some order
    assert ours.batch_sizes.tolist() == theirs.batch_sizes.tolist()
    own_rows = dict(zip(order.tolist(), (row.tolist() for row in ours.rows()), strict=True))
    assert [own_rows[index] for index in range(len(rows))] == [
        row.tolist() for row in unpack_sequence(theirs)
    ]
