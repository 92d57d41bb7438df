"""The varlen layout: rows of several sequences, where each begins, and invalid rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import lay_out

from seqpack_cli.shards.shared_rows import VarlenBatch

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=10)


def draw_batch(lengths: list[int]) -> VarlenBatch:
    """Draw a row of sequences of these lengths, in any order of length."""
    draws = np.random.default_rng(sum(lengths))
    rows = [draws.integers(0, 2**16, n).astype(np.uint16) for n in lengths]
    batch = lay_out("varlen", rows, np.arange(len(rows)))
    assert isinstance(batch, VarlenBatch)
    return batch


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_cu_seqlens_and_position_ids_agree_with_the_slow_ones(lengths: list[int]) -> None:
    batch = draw_batch(lengths)
    assert batch.cu_seqlens.dtype == np.int32  # what the attention kernels take
    assert batch.cu_seqlens.tolist() == [sum(lengths[:end]) for end in range(len(lengths) + 1)]
    assert batch.position_ids.dtype == np.int64
    assert batch.position_ids.tolist() == [step for length in lengths for step in range(length)]


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_rows_are_those_between_the_borders(lengths: list[int]) -> None:
    batch = draw_batch(lengths)
    batch.check(pad_id=0)
    borders = batch.cu_seqlens.tolist()
    expected = [batch.data[borders[row] : borders[row + 1]].tolist() for row in range(len(lengths))]
    for found in (batch.rows(), [batch.row(row) for row in range(len(lengths))]):
        assert [row.tolist() for row in found] == expected
        assert all(np.shares_memory(row, batch.data) for row in found)
    assert batch.count_padding() == 0


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 0, 3], "expected no empty sequence, found one in row 1"),
        ([2, 4, -1], "expected no empty sequence, found one in row 2"),
        ([2, 2], "lengths do not add up to the 5 ids of data"),
        ([2, 3, 1], "lengths do not add up to the 5 ids of data"),
        ([6], "lengths do not add up to the 5 ids of data"),
        ([2**62, 2**62, 2**62, 2**62, 5], "lengths do not add up to the 5 ids of data"),
        ([2**63 - 1, 2**63 - 1, 7], "lengths do not add up to the 5 ids of data"),
    ],
)
def test_check_refuses_lengths_of_another_row(lengths: list[int], message: str) -> None:
    batch = replace(draw_batch([2, 3]), lengths=np.array(lengths, np.int64))
    with pytest.raises(ValueError, match=f"^{message}$"):
        batch.check(pad_id=0)
