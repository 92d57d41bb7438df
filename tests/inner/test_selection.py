"""Which sequences are kept, and a ledger that counts each one once."""

from __future__ import annotations

import numpy as np
import pytest
from batching_reference import Parts
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.length_counts import count_lengths
from seqpack_cli.batching.selection import OverlongError, Selection


def make_selection(lengths: list[int]) -> Selection:
    source = Parts([lengths])
    return Selection(source, count_lengths([source.lengths] if lengths else []))


@given(
    st.lists(st.integers(1, 30), max_size=25),
    st.lists(st.tuples(st.sampled_from(["drop_shorter", "overflow"]), st.integers(0, 30))),
)
def test_selection_counts_every_sequence_once(
    lengths: list[int], drops: list[tuple[str, int]]
) -> None:
    selection = make_selection(lengths)
    kept = lengths
    sequences: dict[str, int] = {}
    tokens: dict[str, int] = {}
    for reason, limit in drops:
        selection.drop(reason, selection.kept.lengths > limit)
        out = [length for length in kept if length > limit]
        sequences[reason] = sequences.get(reason, 0) + len(out)
        tokens[reason] = tokens.get(reason, 0) + sum(out)
        kept = [length for length in kept if length <= limit]
    left = np.repeat(selection.kept.lengths, selection.kept.counts)
    assert left.tolist() == sorted(kept, reverse=True)
    assert selection.num_dropped_sequences == sequences
    assert selection.num_dropped_tokens == tokens


def test_selection_counts_tokens_beyond_32_bits() -> None:
    selection = make_selection([2**31 - 1] * 3)
    selection.drop("drop_longer", np.array([True]))
    assert selection.num_dropped_tokens == {"drop_longer": 3 * (2**31 - 1)}


def test_check_at_most_names_the_first_longest_that_is_left() -> None:
    selection = make_selection([7, 50, 1200, 1200, 9000])
    selection.drop("drop_longer", selection.kept.lengths > 5000)
    with pytest.raises(OverlongError) as raised:
        selection.check_at_most(1024, "--max-tokens")
    assert str(raised.value) == "sequence 2 has 1,200 tokens, --max-tokens allows 1,024"
    error = raised.value
    assert (error.index, error.length, error.option, error.limit) == (2, 1200, "--max-tokens", 1024)


def test_check_at_most_lets_the_limit_itself_and_dropped_ones_pass() -> None:
    selection = make_selection([7, 50])
    selection.check_at_most(50, "--max-tokens")
    selection.drop("drop_longer", selection.kept.lengths == 50)
    selection.check_at_most(7, "--max-tokens")
    make_selection([]).check_at_most(1, "--max-tokens")
