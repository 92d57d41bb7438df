"""Batches of every layout as torch takes them: the same rows, longest first, none empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import lay_out, slow_pack

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.verification.torch_rows import TorchRows, to_torch_rows

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)


def make_rows(layout: str, lengths: list[int], **options: Any) -> tuple[TorchRows, list[list[int]]]:
    """Lay out rows of different ids for torch."""
    rows = [(np.arange(n) + 100 * i).astype(np.uint16) for i, n in enumerate(lengths)]
    batch = lay_out(layout, rows, np.arange(len(rows)), pad_id=60_000, **options)
    return to_torch_rows(batch), [row.tolist() for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS)
def test_rows_are_packed_as_torch_packs_them(layout: str, lengths: list[int]) -> None:
    lengths = sorted(lengths, reverse=True)
    found, rows = make_rows(layout, lengths)
    packed = found.to_packed_sequence(CPU)
    data, batch_sizes = slow_pack(rows)
    assert packed.data.dtype == torch.int64
    assert packed.data.tolist() == data
    assert packed.batch_sizes.tolist() == batch_sizes
    assert packed.sorted_indices is None
    assert sorted(found.tokens.tolist()) == sorted(data)


@settings(max_examples=40, deadline=None)
@given(LENGTHS)
def test_rows_that_share_a_line_are_sorted(lengths: list[int]) -> None:
    found, rows = make_rows("varlen", lengths)  # not longest first
    assert found.batch_sizes is not None
    assert found.lengths.tolist() == sorted(lengths, reverse=True)
    by_length = sorted(range(len(rows)), key=lambda row: -lengths[row])
    assert found.order.tolist() == by_length  # stable
    assert found.cells.tolist() == slow_pack([rows[row] for row in by_length])[0]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(0, 3), st.integers(0, 2), st.sampled_from(["left", "right"]))
def test_rectangles_are_padded_on_the_right_without_filler(
    lengths: list[int], num_filler_rows: int, extra: int, side: str
) -> None:
    lengths = sorted(lengths, reverse=True)
    found, rows = make_rows(
        "padded",
        lengths,
        width=lengths[0] + extra,
        padding_side=side,
        num_filler_rows=num_filler_rows,
    )
    assert found.batch_sizes is None
    assert found.order.tolist() == list(range(len(rows)))
    assert found.tokens.tolist() == [id_ for row in rows for id_ in row]
    by_row = zip(found.cells.tolist(), found.lengths.tolist(), strict=True)
    assert [cells[:length] for cells, length in by_row] == rows


@pytest.mark.parametrize("layout", LAYOUTS)
def test_some_rows_are_kept(layout: str) -> None:
    found, rows = make_rows(layout, [7, 5, 5, 2, 1])
    kept = found.keep(np.array([0, 2, 4]))
    assert kept.order.tolist() == [0, 2, 4]
    assert kept.lengths.tolist() == [7, 5, 1]
    assert kept.to_packed_sequence(CPU).data.tolist() == slow_pack([rows[0], rows[2], rows[4]])[0]
    again = replace(kept, order=np.arange(3)).keep(np.array([1]))
    assert again.to_packed_sequence(CPU).data.tolist() == rows[2]
