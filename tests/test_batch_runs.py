"""Batches that are alike, counted together, beside the same batches one by one."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.batch_runs import BatchRuns

NAMES = [field.name for field in fields(BatchRuns)]


@st.composite
def draw_runs(draw: st.DrawFn) -> BatchRuns:
    counts = draw(st.lists(st.integers(1, 4), max_size=6))
    rows = draw(st.lists(st.integers(1, 9), min_size=len(counts), max_size=len(counts)))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(counts), max_size=len(counts)))
    starts, end = [], 0
    for count, num_rows, gap in zip(counts, rows, gaps, strict=True):
        starts.append(end + gap)
        end += gap + count * num_rows
    others = [[number * 10 + place for place in range(len(counts))] for number in range(4)]
    return BatchRuns(*(np.array(column, np.int64) for column in (starts, counts, rows, *others)))


def list_batches(runs: BatchRuns) -> list[tuple[int, ...]]:
    """Give the numbers of each batch, without how many are alike."""
    return [
        (start + number * num_rows, num_rows, *others)
        for start, count, num_rows, *others in zip(
            *(getattr(runs, name).tolist() for name in NAMES), strict=True
        )
        for number in range(count)
    ]


@given(draw_runs())
def test_expand_gives_every_batch_a_run(runs: BatchRuns) -> None:
    expanded = runs.expand()
    assert list_batches(expanded) == list_batches(runs)
    assert expanded.counts.tolist() == [1] * runs.num_batches
    assert {getattr(expanded, name).dtype for name in NAMES} == {np.dtype(np.int64)}


@given(draw_runs(), st.data())
def test_cut_gives_the_batches_between(runs: BatchRuns, data: st.DataObject) -> None:
    batches = list_batches(runs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batches)), min_size=2, max_size=6)))
    pieces = runs.cut(cuts)
    assert [list_batches(piece) for piece in pieces] == [
        batches[first:last] for first, last in pairwise(cuts)
    ]
    assert all((piece.counts > 0).all() for piece in pieces)


@given(draw_runs())
def test_add_up_counts_every_batch(runs: BatchRuns) -> None:
    assert runs.add_up(runs.num_tokens) == sum(batch[2] for batch in list_batches(runs))


@given(st.lists(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4), max_size=5))
def test_of_batches_counts_rows_and_tokens(batches: list[list[int]]) -> None:
    lengths = np.array([length for batch in batches for length in batch], np.int32)
    offsets = np.cumsum([0, *map(len, batches)])
    nothing = np.zeros(len(batches), np.int64)
    runs = BatchRuns.of_batches(lengths, offsets, nothing, nothing)
    assert runs.starts.tolist() == offsets[:-1].tolist()
    assert runs.num_rows.tolist() == list(map(len, batches))
    assert runs.num_tokens.tolist() == list(map(sum, batches))
    assert runs.longest.tolist() == list(map(max, batches))
    assert runs.counts.tolist() == [1] * len(batches)
    joined = BatchRuns.join([runs, BatchRuns.join([]), runs])
    assert joined.num_rows.tolist() == [*map(len, batches)] * 2
