"""How many sequences have each length, counted in any number of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plan import FEW, HUGE

from seqpack_cli.batching.length_counts import count_lengths
from seqpack_cli.limits import LIMITS


@given(st.lists(st.lists(st.one_of(FEW, st.integers(65_530, HUGE)), max_size=9), max_size=5))
def test_count_lengths_counts_short_and_huge_ones(blocks: list[list[int]]) -> None:
    lengths = [length for block in blocks for length in block]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_per_block", 4)
        found = count_lengths(np.array(block, np.int32) for block in blocks)
    assert found.lengths.tolist() == sorted(set(lengths), reverse=True)
    assert found.counts.tolist() == [lengths.count(length) for length in found.lengths.tolist()]
    assert found.num_sequences == len(lengths)
