"""Which sequences are left, and a ledger that counts each one once."""

from __future__ import annotations

import numpy as np
import pytest
from batching_reference import slow_shuffled
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.selection import OverlongError, Selection


@given(
    st.lists(st.integers(1, 30), max_size=25),
    st.lists(st.tuples(st.sampled_from(["min_length", "overlong"]), st.integers(0, 30))),
    st.one_of(st.none(), st.integers(0, 9)),
)
def test_selection_counts_every_sequence_once(
    lengths: list[int], drops: list[tuple[str, int]], seed: int | None
) -> None:
    selection = Selection(np.array(lengths, np.int32))
    kept = list(range(len(lengths)))
    sequences: dict[str, int] = {}
    tokens: dict[str, int] = {}
    for reason, limit in drops:
        selection.drop(reason, np.array(lengths, np.int32) > limit)
        out = [index for index in kept if lengths[index] > limit]
        sequences[reason] = sequences.get(reason, 0) + len(out)
        tokens[reason] = tokens.get(reason, 0) + sum(lengths[index] for index in out)
        kept = [index for index in kept if index not in out]
    if seed is not None:
        kept = [index for index in slow_shuffled(len(lengths), seed=seed) if index in kept]
    order = selection.take(seed=seed)
    assert order.dtype == np.int64
    assert order.tolist() == kept
    assert selection.num_dropped_sequences == sequences
    assert selection.num_dropped_tokens == tokens


def test_selection_drops_by_mask_or_by_indices() -> None:
    selection = Selection(np.array([3, 9, 5, 9]))
    selection.drop("max_length", np.array([False, True, False, False]))
    selection.drop("last_batch", np.array([3, 1]))
    assert selection.take(seed=None).tolist() == [0, 2]
    assert selection.num_dropped_sequences == {"max_length": 1, "last_batch": 1}
    assert selection.num_dropped_tokens == {"max_length": 9, "last_batch": 9}


def test_selection_counts_tokens_beyond_32_bits() -> None:
    selection = Selection(np.full(3, 2**31 - 1, np.int32))
    selection.drop("max_length", np.array([0, 1, 2]))
    assert selection.num_dropped_tokens == {"max_length": 3 * (2**31 - 1)}


def test_check_at_most_names_the_first_longest_that_is_left() -> None:
    selection = Selection(np.array([7, 50, 1200, 1200, 9000]))
    selection.drop("max_length", selection.lengths > 5000)
    with pytest.raises(OverlongError) as raised:
        selection.check_at_most(1024, "--max-tokens")
    assert str(raised.value) == "sequence 2 has 1,200 tokens, --max-tokens allows 1,024"
    error = raised.value
    assert (error.index, error.length, error.option, error.limit) == (2, 1200, "--max-tokens", 1024)


def test_check_at_most_lets_the_limit_itself_and_dropped_ones_pass() -> None:
    selection = Selection(np.array([7, 50]))
    selection.check_at_most(50, "--max-tokens")
    selection.drop("max_length", np.array([1]))
    selection.check_at_most(7, "--max-tokens")
    Selection(np.empty(0, np.int32)).check_at_most(1, "--max-tokens")


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), unique_by=lambda run: run[0]),
    st.lists(st.tuples(st.sampled_from(["min_length", "overlong"]), st.integers(0, 30))),
)
def test_selection_of_distinct_lengths_counts_their_sequences(
    runs: list[tuple[int, int]], drops: list[tuple[str, int]]
) -> None:
    lengths, counts = np.array(runs, np.int64).reshape(-1, 2).T
    each = Selection(np.repeat(lengths, counts))
    distinct = Selection(lengths, counts)
    for reason, limit in drops:
        for selection in (each, distinct):
            selection.drop(reason, selection.lengths > limit)
    assert distinct.num_dropped_sequences == each.num_dropped_sequences
    assert distinct.num_dropped_tokens == each.num_dropped_tokens
    assert np.repeat(distinct.kept, counts).tolist() == each.kept.tolist()
