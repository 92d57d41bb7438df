"""The plan without an array of all sequences beside the one that has it: the same batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_batch_plan import pack_options

from seqpack_cli.batching import length_counts, range_plan, window_batches
from seqpack_cli.batching.batch_plan import BatchPlan, plan_batches
from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.length_counts import count_lengths
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.range_plan import RangePlan, can_plan_ranges, plan_ranges
from seqpack_cli.batching.row_ranges import LengthRange, RangeRows, WindowRange
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.shards.lay_out import ShardRows, take_rows

HUGE = 2**31 - 1
FEW = st.sampled_from([1, 2, 3, 9, 30])
LENGTHS = st.one_of(
    st.lists(st.integers(1, 30), max_size=60),
    st.lists(FEW, max_size=60),
    st.lists(st.one_of(FEW, st.integers(HUGE - 3, HUGE), st.integers(65_530, 65_540)), max_size=30),
)


@dataclass
class Parts:
    """Lengths in parts; which ones were read is written down."""

    lengths: list[list[int]]

    def __post_init__(self) -> None:
        self.part_offsets = np.cumsum([0, *map(len, self.lengths)])
        self.read: list[int] = []

    def part_lengths(self, number: int) -> np.ndarray:
        self.read.append(number)
        array = np.array(self.lengths[number], np.int32)
        array.flags.writeable = False
        return array


@st.composite
def draw_parts(draw: st.DrawFn) -> Parts:
    """Draw lengths, and cut them into parts, some of which are empty."""
    lengths = draw(LENGTHS)
    cuts = sorted(draw(st.lists(st.integers(0, len(lengths)), max_size=5)))
    return Parts([lengths[first:last] for first, last in pairwise([0, *cuts, len(lengths)])])


def join(parts: Parts) -> np.ndarray:
    return np.array([length for part in parts.lengths for length in part], np.int32)


def plan_parts(lengths: list[list[int]], **options: Any) -> tuple[RangePlan, Parts]:
    parts = Parts(lengths)
    return plan_ranges(parts, PackOptions(**options).resolve()), parts


def find(parts: Parts, rows: RangeRows) -> ShardRows:
    indices, lengths = rows.span.find(parts)
    assert len(indices) == len(lengths) == rows.span.num_rows
    return take_rows(rows, indices, lengths)


def list_columns(runs: BatchRuns) -> list[list[int]]:
    """Give every column of every batch but where it begins: a dropped one leaves a gap."""
    each = runs.expand()
    columns = (each.num_rows, each.num_tokens, each.longest, each.widths, each.num_filler_rows)
    return [column.tolist() for column in columns]


def assert_same_rows(found: ShardRows, expected: ShardRows) -> None:
    for name in ("indices", "lengths", "batch_offsets", "widths", "num_filler_rows"):
        array = getattr(found, name)
        assert array.tolist() == getattr(expected, name).tolist(), name
        assert array.dtype == getattr(expected, name).dtype, name
    assert found.piece_starts is None


@settings(max_examples=200, deadline=None)
@given(
    parts=draw_parts(),
    options=pack_options(),
    many=st.booleans(),
    rows_per_span=st.sampled_from([1, 7, 1 << 22]),
    data=st.data(),
)
def test_range_plan_makes_the_batches_of_the_whole_plan(
    parts: Parts, options: PackOptions, many: bool, rows_per_span: int, data: st.DataObject
) -> None:
    options = replace(options, shuffle=False, seed=0)
    if many and options.max_tokens is not None and options.layout == "packed":
        options = replace(options, max_tokens=HUGE)
    assume(can_plan_ranges(options))
    try:
        expected = plan_batches(join(parts), options)
    except OverlongError as error:
        with pytest.raises(OverlongError) as caught:
            plan_ranges(parts, options)
        assert vars(caught.value) == vars(error)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_counts, "ROWS_PER_BLOCK", 4)
        patch.setattr(window_batches, "ROWS_PER_BLOCK", 6)
        patch.setattr(range_plan, "ROWS_PER_SPAN", rows_per_span)
        plan = plan_ranges(parts, options)
        assert_same_plan(plan, expected)
        numbers = st.lists(st.integers(0, plan.num_batches), max_size=6)
        cuts = sorted({0, *data.draw(numbers), plan.num_batches})
        for (first, last), rows in zip(pairwise(cuts), plan.cut(cuts), strict=True):
            assert_same_rows(find(parts, rows), ShardRows.cut(expected, first, last))


def assert_same_plan(plan: RangePlan, expected: BatchPlan) -> None:
    assert plan.num_batches == expected.num_batches
    assert list_columns(plan.runs) == list_columns(expected.runs)
    assert plan.bucket_keys == expected.bucket_keys
    # A manifest has them in this order.
    for name in ("num_dropped_sequences", "num_dropped_tokens"):
        assert [*getattr(plan, name).items()] == [*getattr(expected, name).items()]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"window": 1000},
        {"order": "none"},
        {"max_tokens": 4000, "order": "none", "last_batch": "drop"},
        {"max_tokens": 4000},
        {"layout": "padded", "max_tokens": 4000, "pad_to_multiple": 8, "buckets": "auto"},
        {"layout": "padded", "max_tokens": 4000, "window": 777, "last_batch": "keep"},
        {"layout": "padded", "buckets": (64, 128, 256), "last_batch": "pad"},
        {"layout": "padded", "buckets": (64, 128, 256), "last_batch": "drop", "min_length": 3},
    ],
    ids=str,
)
def test_range_plan_is_the_whole_plan_for_many_sequences(values: dict[str, Any]) -> None:
    drawn = np.random.default_rng(0).lognormal(3, 1, 20_000).astype(np.int32).clip(1, 256)
    parts = Parts([some.tolist() for some in np.split(drawn, [5000, 5000, 12_345])])
    options = PackOptions(**values).resolve()
    assert can_plan_ranges(options)
    plan, expected = plan_ranges(parts, options), plan_batches(drawn, options)
    assert_same_plan(plan, expected)
    cuts = [0, 1, 2, plan.num_batches // 2, plan.num_batches]
    for (first, last), rows in zip(pairwise(cuts), plan.cut(cuts), strict=True):
        assert_same_rows(find(parts, rows), ShardRows.cut(expected, first, last))


def test_range_plan_keeps_batches_that_are_alike_together() -> None:
    plan, _ = plan_parts([[7] * 1000, [3] * 1000], batch_size=10)
    assert plan.runs.counts.tolist() == [99, 1, 99, 1]
    assert plan.runs.starts.tolist() == [0, 990, 1000, 1990]
    assert plan.runs.num_tokens.tolist() == [70, 70, 30, 30]
    assert (plan.num_batches, plan.runs.add_up(plan.runs.num_rows)) == (200, 2000)


def test_range_of_the_order_is_between_two_lengths() -> None:
    plan, _ = plan_parts([[5, 9, 5, 2], [], [5, 2, 5, 9]], batch_size=2)
    (rows,) = plan.cut([1, 3])
    assert rows.span == LengthRange(2, 4, longest=5, shortest=5, num_skipped=0, num_shortest=4)
    (rows,) = plan.cut([2, 4])
    assert rows.span == LengthRange(4, 4, longest=5, shortest=2, num_skipped=2, num_shortest=2)


def test_range_of_the_order_takes_equal_sequences_by_their_numbers() -> None:
    plan, parts = plan_parts([[5, 5, 5], [5, 5, 9], [5, 5]], batch_size=2)
    (rows,) = plan.cut([1, 3])
    found = find(parts, rows)
    assert found.indices.tolist() == [1, 2, 3, 4]
    assert found.lengths.tolist() == [5, 5, 5, 5]


def test_range_of_windows_reads_the_parts_that_it_touches() -> None:
    parts = [[1, 9], [2, 8], [3, 7], [], [4, 6], [5, 5]]
    plan, source = plan_parts(parts, batch_size=2, window=4, min_length=2)
    (rows,) = plan.cut([2, 3])
    assert rows.span == WindowRange(4, 4, 2, 3, least=2, most=9, window=4)
    source.read.clear()
    assert find(source, rows).indices.tolist() == [5, 7]  # of 7 4 6 5
    assert source.read == [2, 4, 5]


def test_neighbours_share_one_look_at_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_plan, "ROWS_PER_SPAN", 6)
    plan, _ = plan_parts([list(range(1, 21))], batch_size=2)
    spans = [rows.span for rows in plan.cut(list(range(11)))]
    assert [(span.start, span.num_rows) for span in spans] == (
        [(0, 6)] * 3 + [(6, 6)] * 3 + [(12, 6)] * 3 + [(18, 2)]
    )
    monkeypatch.setattr(range_plan, "ROWS_PER_SPAN", 1)
    assert [rows.span.num_rows for rows in plan.cut([0, 4, 5, 10])] == [8, 2, 10]


def test_range_plan_names_the_first_of_the_longest() -> None:
    for window in (None, 2):
        with pytest.raises(OverlongError) as caught:
            plan_parts([[3, 30], [30, 12]], max_tokens=10, window=window)
        assert str(caught.value) == "sequence 1 has 30 tokens, --max-tokens allows 10"


def test_can_plan_ranges_leaves_shuffles_and_bins_to_the_whole_plan() -> None:
    for values, possible in (
        ({}, True),
        ({"layout": "padded", "buckets": "auto"}, True),
        ({"window": 9}, True),
        ({"order": "none"}, True),
        ({"window": 9, "buckets": "auto"}, False),
        ({"order": "none", "buckets": "auto"}, False),
        ({"shuffle": True}, False),
        ({"layout": "varlen", "max_tokens": 9}, False),
        ({"layout": "varlen", "max_tokens": 9, "packing": "sequential"}, False),
    ):
        assert can_plan_ranges(PackOptions(**values).resolve()) is possible, values


@given(st.lists(st.lists(st.one_of(FEW, st.integers(65_530, HUGE)), max_size=9), max_size=5))
def test_count_lengths_counts_short_and_huge_ones(blocks: list[list[int]]) -> None:
    lengths = [length for block in blocks for length in block]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_counts, "ROWS_PER_BLOCK", 4)
        found = count_lengths(np.array(block, np.int32) for block in blocks)
    assert found.lengths.tolist() == sorted(set(lengths), reverse=True)
    assert found.counts.tolist() == [lengths.count(length) for length in found.lengths.tolist()]


def test_cut_windows_does_not_copy_a_long_batch_with_every_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_batches, "ROWS_PER_BLOCK", 2)
    cut: list[int] = []
    limits = range_plan.make_limits(PackOptions(batch_size=10_000, order="none").resolve(), None)

    class Counting(type(limits[0])):  # type: ignore[misc]
        def cut(self, lengths: np.ndarray) -> np.ndarray:
            cut.append(len(lengths))
            return super().cut(lengths)  # type: ignore[no-any-return]

    runs = window_batches.cut_windows(
        iter([np.ones(4000, np.int32)]), None, Counting(**vars(limits[0]))
    )
    assert runs.num_rows.tolist() == [4000]
    assert sum(cut) < 20_000
