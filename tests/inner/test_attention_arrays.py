"""The arrays and windows of attention: see test_attention.py for what it computes from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention import PADDED, ROW_LENGTHS, make_batch, make_padded

from seqpack_cli.verification.models.attention_arrays import choose_sequences, take_window


def slow_most_borders(lengths: list[int], max_tokens: int) -> tuple[int, int]:
    """Return the most whole neighbours that fit, and the most tokens of as many."""
    ranges = [
        (end - start, sum(lengths[start:end]))
        for start in range(len(lengths))
        for end in range(start, len(lengths) + 1)
    ]
    return max(fitting for fitting in ranges if fitting[1] <= max_tokens)


@settings(max_examples=200, deadline=None)
@given(ROW_LENGTHS, st.integers(1, 40))
def test_a_window_has_as_many_borders_as_fit(lengths: list[int], max_tokens: int) -> None:
    batch = replace(make_batch(lengths), data=np.arange(sum(lengths)))
    window, first, was_cut = take_window(batch, max_tokens)
    assert was_cut is (sum(lengths) > max_tokens)
    if not was_cut:
        assert (window, first) == (batch, 0)
        return
    assert len(window.data) <= max_tokens
    kept = window.lengths.tolist()
    for number, (row, length) in enumerate(zip(window.rows(), kept, strict=True)):
        assert row.tolist() == batch.row(first + number)[:length].tolist()
    assert window.original_indices is not None
    assert window.original_indices.tolist() == list(range(first, first + len(kept)))
    most = slow_most_borders(lengths, max_tokens)
    if most[0] > 1:
        assert (len(kept), sum(kept)) == most
        assert kept == lengths[first : first + len(kept)]
    else:
        assert sum(kept) == max_tokens  # cut to the last token
        assert len(kept) == min(2, len(lengths), max_tokens)


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "first", "kept"),
    [
        ([9, 3, 2, 3, 9], 8, 1, [3, 2, 3]),
        ([2, 2, 9, 4, 4], 8, 3, [4, 4]),  # as many borders, more tokens
        ([80, 2], 10, 0, [8, 2]),
        ([2, 80], 10, 0, [2, 8]),
        ([80, 60, 70], 11, 1, [5, 6]),
        ([50], 10, 0, [10]),
        ([50, 60], 1, 0, [1]),
    ],
)
def test_choose_sequences(lengths: list[int], max_tokens: int, first: int, kept: list[int]) -> None:
    found, found_lengths = choose_sequences(np.array(lengths), max_tokens)
    assert (found, found_lengths.tolist()) == (first, kept)


def test_a_window_keeps_piece_starts() -> None:
    batch = replace(make_batch(), piece_starts=np.array([0, 4, 0, 7, 0]), original_indices=None)
    window, first, _ = take_window(batch, 4)
    assert (first, window.lengths.tolist()) == (3, [2, 1])
    assert window.piece_starts is not None
    assert window.piece_starts.tolist() == [7, 0]
    assert window.original_indices is None


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("max_tokens", [5, 12, 16, 20, 40])
def test_a_window_of_padded_rows_is_a_batch_of_their_sequences(kind: str, max_tokens: int) -> None:
    batch = make_padded(**PADDED[kind])
    window, first, was_cut = take_window(batch, max_tokens)
    assert len(window.data) <= max_tokens or not was_cut
    for number, (row, length) in enumerate(zip(window.rows(), window.lengths, strict=True)):
        assert row.tolist() == batch.row(first + number)[:length].tolist()
    if max_tokens == 16 and batch.row_length:  # one whole row
        assert window.shape == (1, 16)


def test_a_window_has_the_rows_with_the_most_sequences() -> None:
    batch = make_padded([16, 8, 8, 4, 4, 4, 9], rows=[0, 1, 1, 2, 2, 2, 3], row_length=16)
    window, first, _ = take_window(batch, 32)
    assert (first, window.lengths.tolist()) == (1, [8, 8, 4, 4, 4])
