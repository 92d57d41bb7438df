"""Windows of a batch, as large as the limits allow, are batches of the same tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reference import lay_out, slow_pack
from torch.nn.utils.rnn import unpack_sequence

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.padded import PaddedBatch, pad_sequence
from seqpack_cli.shards.time_steps import count_alive
from seqpack_cli.verification.models.batch_ids import (
    CELLS_PER_TOKEN,
    MAX_PADDING_COLUMNS,
    MAX_ROWS,
    SizeLimits,
    choose_limits,
    choose_window,
    order_rows,
    take_ids,
)

CPU = torch.device("cpu")
WIDE = SizeLimits(max_tokens=10_000, max_steps=1000)
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8).map(
    lambda lengths: sorted(lengths, reverse=True)
)
LIMITS = st.builds(
    SizeLimits,
    max_tokens=st.integers(1, 60),
    max_steps=st.integers(1, 13),
    max_work=st.one_of(st.none(), st.integers(1, 300)),
)


def make_batch(layout: str, lengths: list[int]) -> tuple[Batch, list[list[int]]]:
    """Lay out rows of different ids."""
    rows = [(np.arange(n) + 100 * i).astype(np.uint16) for i, n in enumerate(lengths)]
    batch = lay_out(layout, rows, np.arange(len(rows)), pad_id=60_000)
    return batch, [row.tolist() for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS)
def test_a_whole_batch_is_taken_as_it_is(layout: str, lengths: list[int]) -> None:
    batch, rows = make_batch(layout, lengths)
    ids = take_ids(batch, CPU, WIDE)
    assert not ids.was_cut
    assert ids.packed.data.tolist() == slow_pack(rows)[0]
    assert ids.lengths.tolist() == lengths
    assert ids.packed.data[ids.row_order].tolist() == [id_ for row in rows for id_ in row]
    assert ids.rectangle[ids.mask].tolist() == [id_ for row in rows for id_ in row]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=120, deadline=None)
@given(lengths=LENGTHS, limits=LIMITS)
def test_a_window_holds_the_same_tokens_within_the_limits(
    layout: str, lengths: list[int], limits: SizeLimits
) -> None:
    batch, rows = make_batch(layout, lengths)
    batch_sizes = count_alive(np.array(lengths))
    start, end = choose_window(batch_sizes, limits)
    assert 0 <= start < end <= lengths[0]
    ids = take_ids(batch, CPU, limits)
    windows = [row[start:end] for row in rows if len(row) > start]
    assert [row.tolist() for row in unpack_sequence(ids.packed)] == windows
    assert ids.lengths.tolist() == [len(row) for row in windows]
    assert ids.rectangle[ids.mask].tolist() == [id_ for row in windows for id_ in row]
    assert ids.packed.data[ids.row_order].tolist() == [id_ for row in windows for id_ in row]
    assert ids.was_cut is (end - start < lengths[0])
    steps, tokens = end - start, len(ids.packed.data)
    one_step = steps == 1  # the least that can be computed
    assert one_step or steps <= limits.max_steps
    assert one_step or tokens <= limits.max_tokens
    assert one_step or ids.rectangle.numel() <= CELLS_PER_TOKEN * limits.max_tokens
    assert one_step or limits.max_work is None or steps * tokens <= limits.max_work


def test_the_loop_bounds_steps_on_a_gpu() -> None:
    steps = {
        (device, level): choose_limits(level, torch.device(device), max_tokens=9).max_steps
        for device in ("cuda", "cpu")
        for level in ("forward", "backward")
    }
    assert list(steps.values()) == [4096, 2048, 1024, 1024]


def test_a_window_is_taken_where_most_rows_end_before_others() -> None:
    batch_sizes = count_alive(np.array([20, 11, 11, 10, 3]))
    assert choose_window(batch_sizes, SizeLimits(max_tokens=15, max_steps=99)) == (9, 12)
    assert choose_window(batch_sizes, SizeLimits(max_tokens=99, max_steps=2)) == (10, 12)


def test_a_batch_of_mostly_padding_is_cut() -> None:
    batch_sizes = count_alive(np.array([100, *[1] * 9]))
    assert choose_window(batch_sizes, SizeLimits(max_tokens=250, max_steps=999)) == (0, 100)
    start, end = choose_window(batch_sizes, SizeLimits(max_tokens=249, max_steps=999))
    assert end - start < 100


@settings(max_examples=60, deadline=None)
@given(LENGTHS)
def test_order_rows_is_where_unpack_looks(lengths: list[int]) -> None:
    rows = [[(row, step) for step in range(n)] for row, n in enumerate(lengths)]
    by_step = [row[t] for t in range(lengths[0]) for row in rows if len(row) > t]
    order = order_rows(torch.from_numpy(count_alive(np.array(lengths))))
    assert [by_step[place] for place in order.tolist()] == [cell for row in rows for cell in row]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), LIMITS)
def test_row_numbers_of_varlen_are_those_of_the_shards_batch(
    lengths: list[int], limits: SizeLimits
) -> None:
    batch, rows = make_batch("varlen", lengths)  # not longest first
    start, end = choose_window(count_alive(np.array(sorted(lengths, reverse=True))), limits)
    ids = take_ids(batch, CPU, limits)
    assert len(ids.row_numbers) == len(ids.lengths)
    for row, window in zip(ids.row_numbers, unpack_sequence(ids.packed), strict=True):
        assert window.tolist() == rows[row][start:end]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(0, 3), st.integers(0, 2), st.sampled_from(["left", "right"]), LIMITS)
def test_padded_rows_are_the_same_on_either_side_and_with_filler(
    lengths: list[int], num_filler_rows: int, extra: int, side: str, limits: SizeLimits
) -> None:
    plain, _ = make_batch("padded", lengths)
    assert isinstance(plain, PaddedBatch)
    batch = with_filler(plain, num_filler_rows, width=lengths[0] + extra, padding_side=side)
    expected, found = (take_ids(taken, CPU, limits) for taken in (plain, batch))
    assert torch.equal(found.packed.data, expected.packed.data)
    assert torch.equal(found.packed.batch_sizes, expected.packed.batch_sizes)
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.equal(found.rectangle[found.mask], expected.rectangle[expected.mask])
    assert found.row_numbers.tolist() == expected.row_numbers.tolist()


def with_filler(
    batch: PaddedBatch, num_filler_rows: int, *, width: int, padding_side: str
) -> PaddedBatch:
    """Pad the rows again, wider, on a side, and put empty ones behind them."""
    wide = pad_sequence(
        batch.rows(), padding_value=60_000, total_length=width, padding_side=padding_side
    )
    filler = np.full((num_filler_rows, width), 60_000, wide.ids.dtype)
    assert batch.original_indices is not None
    return replace(
        wide,
        ids=np.concatenate([wide.ids, filler]),
        lengths=np.append(wide.lengths, np.zeros(num_filler_rows, np.int64)),
        original_indices=np.append(batch.original_indices, [-1] * num_filler_rows),
        num_filler_rows=num_filler_rows,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_very_many_rows_some_are_taken(layout: str) -> None:
    lengths = sorted([1 + number % 7 for number in range(3000)], reverse=True)
    batch, rows = make_batch(layout, lengths)
    ids = take_ids(batch, CPU, SizeLimits(max_tokens=100_000, max_steps=100))
    assert ids.was_cut
    assert len(ids.lengths) == MAX_ROWS
    assert ids.row_numbers[0] == 0
    assert ids.row_numbers[-1] == len(lengths) - 1
    for row, ids_of_row in zip(ids.row_numbers, unpack_sequence(ids.packed), strict=True):
        assert ids_of_row.tolist() == rows[row]


def test_of_very_wide_padding_some_columns_are_taken() -> None:
    wide = pad_sequence([np.arange(3), np.arange(2)], padding_value=9, total_length=5000)
    ids = take_ids(wide, CPU, WIDE)
    assert ids.rectangle.shape == (2, 3 + MAX_PADDING_COLUMNS)
    assert not ids.was_cut
