"""The plan of a whole store: what is kept, in which order, in which batch, and the ledger."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import batch_cost, slow_cut, slow_length_order

from seqpack_cli.batching.batch_plan import BatchOptions, BatchPlan, plan_batches

OPTIONS = st.builds(
    BatchOptions,
    batch_size=st.integers(1, 6),
    max_tokens=st.one_of(st.none(), st.integers(20, 60)),
    padded=st.booleans(),
    min_length=st.one_of(st.none(), st.integers(1, 6)),
    max_length=st.one_of(st.none(), st.integers(1, 20)),
    last_batch=st.sampled_from(["keep", "drop"]),
)


def batches_of(plan: BatchPlan) -> list[list[int]]:
    """Give the sequence indices of each batch."""
    return [plan.order[start:end].tolist() for start, end in pairwise(plan.batch_offsets.tolist())]


def slow_plan(lengths: list[int], options: BatchOptions) -> list[list[int]]:
    """Choose, order, cut and drop one step after the other."""
    order = [
        index
        for index in slow_length_order(lengths)
        if (options.min_length is None or lengths[index] >= options.min_length)
        and (options.max_length is None or lengths[index] <= options.max_length)
    ]
    cut = slow_cut(
        [lengths[index] for index in order],
        batch_size=options.batch_size,
        max_tokens=options.max_tokens,
        padded=options.padded,
    )
    left = iter(order)
    batches = [[next(left) for _ in batch] for batch in cut]
    if options.last_batch == "drop" and batches:
        one_more = [*cut[-1], 1]
        fits = options.batch_size is None or len(one_more) <= options.batch_size
        if options.max_tokens is not None:
            fits &= batch_cost(one_more, padded=options.padded) <= options.max_tokens
        if fits:
            batches.pop()
    return batches


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=30), OPTIONS)
def test_plan_is_the_slow_one_and_its_ledger_adds_up(
    lengths: list[int], options: BatchOptions
) -> None:
    plan = plan_batches(np.array(lengths, np.int32), options)
    batches = batches_of(plan)
    assert batches == slow_plan(lengths, options)
    assert plan.num_batches == len(batches)
    kept = [index for batch in batches for index in batch]
    assert len(set(kept)) == len(kept)
    assert len(kept) + sum(plan.num_dropped_sequences.values()) == len(lengths)
    num_tokens = sum(lengths[index] for index in kept)
    assert num_tokens + sum(plan.num_dropped_tokens.values()) == sum(lengths)


def test_plan_names_every_reason_for_a_drop() -> None:
    lengths = np.array([1, 2, 5, 5, 5, 9, 40], np.int32)
    options = BatchOptions(batch_size=3, min_length=2, max_length=9, last_batch="drop")
    plan = plan_batches(lengths, options)
    assert batches_of(plan) == [[5, 2, 3]]
    assert plan.num_dropped_sequences == {"min_length": 1, "max_length": 1, "last_batch": 2}
    assert plan.num_dropped_tokens == {"min_length": 1, "max_length": 40, "last_batch": 7}


def test_plan_keeps_a_full_last_batch() -> None:
    plan = plan_batches(np.array([3, 2, 1, 1]), BatchOptions(batch_size=2, last_batch="drop"))
    assert batches_of(plan) == [[0, 1], [2, 3]]
    assert plan.num_dropped_sequences == {}


def test_plan_keeps_the_limits_inclusive() -> None:
    plan = plan_batches(np.array([1, 2, 3, 4]), BatchOptions(min_length=2, max_length=3))
    assert batches_of(plan) == [[2, 1]]


def test_plan_of_nothing_has_no_batch() -> None:
    plan = plan_batches(np.empty(0, np.int32), BatchOptions())
    assert plan.num_batches == 0
    assert batches_of(plan) == []


def test_plan_refuses_a_kept_sequence_beyond_the_budget() -> None:
    lengths = np.array([30, 8])
    with pytest.raises(ValueError, match="a sequence of 30 tokens, max_tokens is 10"):
        plan_batches(lengths, BatchOptions(max_tokens=10))
    plan = plan_batches(lengths, BatchOptions(max_tokens=10, max_length=10))
    assert batches_of(plan) == [[1]]
