"""The plan of a whole store: which sequences are kept, their order and batches, and the ledger."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from batching_reference import Parts, list_batches, round_up, slow_plan
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqpack_cli.batching import plan as plan_module
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import Plan, needs_array, plan_batches
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.selection import OverlongError
from seqpack_cli.limits import LIMITS

HUGE = 2**31 - 1
LENGTHS = st.lists(st.integers(1, 30), max_size=45)
FEW = st.sampled_from([1, 2, 3, 9, 30])
FEW_OR_HUGE = st.one_of(
    st.lists(st.integers(1, 30), max_size=60),
    st.lists(FEW, max_size=60),
    st.lists(st.one_of(FEW, st.integers(HUGE - 3, HUGE), st.integers(65_530, 65_540)), max_size=30),
)


@st.composite
def pack_options(draw: st.DrawFn) -> PackOptions:
    """Draw options of `packed` and `padded` that do not conflict, resolved."""
    layout = draw(st.sampled_from(["packed", "padded"]))
    multiple = draw(st.sampled_from([1, 1, 4, 8])) if layout == "padded" else 1
    buckets: str | tuple[int, ...] | None = draw(st.sampled_from([None, "auto", "keys"]))
    if buckets == "keys":
        keys = draw(st.lists(st.integers(1, 32 // multiple), min_size=1, max_size=4))
        buckets = tuple(key * multiple for key in keys)
    lowest = max(buckets) if isinstance(buckets, tuple) else 8
    max_tokens = draw(st.none() | st.integers(max(lowest, 24), 120))
    batch_size = draw(st.none() | st.integers(1, 7))
    last_batches = ["keep", "drop"]
    if layout == "padded" and (buckets is not None or max_tokens is None):
        last_batches.append("pad")
    overflow = None
    if max_tokens is not None or isinstance(buckets, tuple):
        overflow = draw(st.sampled_from([None, "drop", "drop", "error"]))
    order = draw(st.sampled_from(["length", "length", "none"]))
    shuffle = draw(st.sampled_from([None, True]))
    return PackOptions(
        layout=layout,
        batch_size=batch_size,
        max_tokens=max_tokens,
        order=order,
        window=draw(st.none() | st.integers(1, 20)) if order == "length" else None,
        shuffle=shuffle,
        seed=draw(st.integers(0, 99)) if shuffle else 0,
        buckets=buckets,
        num_buckets=draw(st.none() | st.integers(1, 4)) if buckets == "auto" else None,
        overflow=overflow,
        last_batch=draw(st.sampled_from(last_batches)),
        drop_shorter=draw(st.none() | st.integers(1, 6)),
        drop_longer=draw(st.none() | st.integers(6, 30)),
        pad_to_multiple=multiple,
    ).resolve()


@st.composite
def draw_parts(draw: st.DrawFn, lengths: st.SearchStrategy[list[int]] = LENGTHS) -> Parts:
    """Draw lengths, and cut them into parts, some of which are empty."""
    drawn = draw(lengths)
    cuts = sorted(draw(st.lists(st.integers(0, len(drawn)), max_size=5)))
    return Parts([drawn[first:last] for first, last in pairwise([0, *cuts, len(drawn)])])


def make_plan(lengths: list[int], **options: Any) -> tuple[Plan, list[list[int]]]:
    """Plan with options that are not resolved yet; return the sequences of each batch as well."""
    source = Parts([lengths])
    plan = plan_batches(source, PackOptions(**options).resolve())
    rows = list_batches(plan, source).rows
    return plan, [[index for index, _, _ in batch] for batch in rows]


@settings(max_examples=100, deadline=None)
@given(draw_parts(), pack_options(), st.lists(st.integers(0, 20), max_size=4))
def test_plan_agrees_with_the_slow_one(
    source: Parts, options: PackOptions, cuts: list[int]
) -> None:
    expected = slow_plan(source.lengths.tolist(), options)
    if expected is None:
        with pytest.raises(OverlongError):
            plan_batches(source, options)
        return
    plan = plan_batches(source, options)
    assert plan.num_batches == len(expected.rows)
    assert list_batches(plan, source, [cut for cut in cuts if cut < plan.num_batches]) == expected


@settings(max_examples=50)
@given(LENGTHS, pack_options())
def test_plan_keeps_to_its_limits_and_its_ledger_adds_up(
    lengths: list[int], options: PackOptions
) -> None:
    if options.overflow != "drop" and (options.max_tokens or isinstance(options.buckets, tuple)):
        options = replace(options, overflow="drop")
    source, padded = Parts([lengths]), options.layout == "padded"
    plan = list_batches(plan_batches(source, options), source)
    kept = [row for batch in plan.rows for row in batch]
    assert all(start == 0 and length == lengths[index] for index, start, length in kept)
    assert len({index for index, _, _ in kept}) == len(kept)
    assert len(kept) + sum(plan.num_dropped_sequences.values()) == len(lengths)
    num_tokens = sum(length for _, _, length in kept)
    assert num_tokens + sum(plan.num_dropped_tokens.values()) == sum(lengths)
    for rows, cells, filler in zip(plan.rows, plan.num_cells, plan.num_filler_rows, strict=True):
        sizes = [length for _, _, length in rows]
        assert sizes
        assert sizes == sorted(sizes, reverse=True)
        assert options.batch_size is None or len(rows) + filler <= options.batch_size
        assert options.max_tokens is None or cells <= options.max_tokens
        width, rest = divmod(cells, len(rows) + filler) if padded else (sizes[0], 0)
        assert (rest, width % options.pad_to_multiple) == (0, 0)
        if isinstance(options.buckets, tuple):
            keys = {min(key for key in options.buckets if key >= size) for size in sizes}
            assert len(keys) == 1
            assert not padded or keys == {width}
        elif options.buckets is None:
            assert width == round_up(sizes[0], options.pad_to_multiple)


@settings(max_examples=60)
@given(LENGTHS, pack_options())
def test_plan_with_padded_last_batches_has_one_shape_per_bucket(
    lengths: list[int], options: PackOptions
) -> None:
    options = replace(options, layout="padded", buckets="auto", num_buckets=3, last_batch="pad")
    plan = plan_batches(Parts([lengths]), replace(options, overflow="drop", max_tokens=64))
    shapes = set(zip(plan.table.widths.tolist(), plan.table.num_rows.tolist(), strict=True))
    assert len(shapes) == len(plan.bucket_keys or []) <= 3
    assert {width for width, _ in shapes} == set(plan.bucket_keys or [])
    for width, rows in shapes:
        assert rows == min(options.batch_size or 64, 64 // width)


def test_plan_names_every_reason_for_a_drop() -> None:
    lengths = [1, 2, 5, 5, 5, 9, 30, 40]
    options = {"batch_size": 3, "drop_shorter": 2, "drop_longer": 39, "last_batch": "drop"}
    plan, batches = make_plan(lengths, **options, max_tokens=20, overflow="drop")
    assert batches == [[5, 2, 3]]
    reasons = ("drop_shorter", "drop_longer", "overflow", "last_batch")
    assert plan.num_dropped_sequences == dict(zip(reasons, (1, 1, 1, 2), strict=True))
    assert plan.num_dropped_tokens == dict(zip(reasons, (1, 40, 30, 7), strict=True))


def test_plan_keeps_a_full_last_batch() -> None:
    plan, batches = make_plan([3, 2, 1, 1], batch_size=2, last_batch="drop")
    assert batches == [[0, 1], [2, 3]]
    assert plan.num_dropped_sequences == {"last_batch": 0}
    plan, batches = make_plan([5, 5, 3, 1, 1], max_tokens=5, last_batch="drop")
    assert batches == [[0], [1], [2, 3, 4]]


def test_plan_keeps_the_limits_inclusive() -> None:
    assert make_plan([1, 2, 3, 4], drop_shorter=2, drop_longer=3)[1] == [[2, 1]]
    assert make_plan([1, 2, 3, 4], max_tokens=4)[1] == [[3], [2], [1, 0]]
    assert make_plan([1, 4, 5, 3], buckets=(2, 4))[1] == [[1, 3], [0]]


def test_plan_of_nothing_has_no_batch() -> None:
    for options in ({}, {"buckets": "auto"}, {"buckets": (4,)}, {"shuffle": True, "max_tokens": 4}):
        for last_batch in ("keep", "drop"):
            plan, batches = make_plan([], **options, last_batch=last_batch)
            assert plan.num_batches == 0
            assert batches == []
    assert make_plan([3], drop_longer=2)[1] == []


def test_plan_pads_the_last_batch_with_empty_rows() -> None:
    plan, batches = make_plan([3, 2, 1], layout="padded", batch_size=2, last_batch="pad")
    assert batches == [[0, 1], [2]]
    assert plan.table.num_filler_rows.tolist() == [0, 1]
    assert plan.table.widths.tolist() == [3, 1]


def test_plan_starts_with_the_largest_bucket() -> None:
    options = {"layout": "padded", "max_tokens": 16, "order": "none", "last_batch": "pad"}
    plan, batches = make_plan([2, 7, 1, 8, 4, 2, 2], buckets=(4, 8, 12, 16), **options)
    assert batches == [[3, 1], [4, 0, 5, 2], [6]]
    assert plan.table.widths.tolist() == [8, 4, 4]
    assert plan.table.num_filler_rows.tolist() == [0, 0, 3]
    assert plan.bucket_keys == [4, 8, 12, 16]


def test_plan_goes_on_behind_a_bucket_without_batches() -> None:
    assert make_plan([1, 1], buckets=(1, 2, 4))[1] == [[0, 1]]
    plan, batches = make_plan([4, 1, 1, 2], buckets=(1, 2, 4), batch_size=2, last_batch="drop")
    assert batches == [[1, 2]]
    assert plan.num_dropped_tokens == {"last_batch": 6}
    assert plan.bucket_keys == [1, 2, 4]


def test_plan_does_not_widen_a_batch_by_the_dropped_one_behind_it() -> None:
    options = {"layout": "padded", "order": "none", "max_tokens": 10, "last_batch": "drop"}
    plan, batches = make_plan([1, 1, 1, 1, 5], **options)
    assert batches == [[0, 1, 2, 3]]
    assert plan.table.widths.tolist() == [1]


def test_plan_rounds_widths_beyond_32_bits() -> None:
    options = {"layout": "padded", "pad_to_multiple": 8, "batch_size": 2}
    plan, batches = make_plan([2**31 - 1, 2**31 - 7, 2**31 - 2], **options)
    assert batches == [[0, 2], [1]]
    assert plan.table.widths.tolist() == [2**31, 2**31]


def test_plan_counts_the_cells_of_rounded_rows() -> None:
    plan, batches = make_plan([5, 5, 5, 3], layout="padded", max_tokens=16, pad_to_multiple=8)
    assert batches == [[0, 1], [2, 3]]
    assert plan.table.widths.tolist() == [8, 8]


def test_plan_refuses_what_does_not_fit() -> None:
    lengths = [30, 8, 1100]
    with pytest.raises(
        OverlongError, match=r"^sequence 2 has 1,100 tokens, --max-tokens allows 9$"
    ):
        make_plan(lengths, max_tokens=9)
    # A row takes whole multiples, so that 16 is the widest under 20.
    with pytest.raises(
        OverlongError, match=r"^sequence 2 has 1,100 tokens, --max-tokens allows 16$"
    ):
        make_plan(lengths, layout="padded", max_tokens=20, pad_to_multiple=8)
    with pytest.raises(OverlongError, match=r"^sequence 2 has 1,100 tokens, --buckets allows 16$"):
        make_plan(lengths, buckets=(8, 16), overflow="error")
    assert make_plan(lengths, max_tokens=10, drop_longer=10)[1] == [[1]]
    plan, batches = make_plan(lengths, buckets=(8, 16))
    assert batches == [[1]]
    assert plan.num_dropped_tokens == {"overflow": 1130}


def test_plan_follows_from_its_seed() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 500).tolist()
    for options in ({"batch_size": 8}, {"max_tokens": 200, "window": 50}, {"buckets": "auto"}):
        plans = [make_plan(lengths, shuffle=True, seed=seed, **options)[1] for seed in (0, 0, 1)]
        assert plans[0] == plans[1]
        assert plans[0] != plans[2]
        assert make_plan(lengths, **options)[1] != plans[0]


def test_plan_shuffles_sequences_before_windows_and_batches_after() -> None:
    lengths = list(range(1, 401))
    _, batches = make_plan(lengths, batch_size=4, shuffle=True, window=40)
    # Within a window of 40 of 400 lengths, four neighbours span about 40; four at random 240.
    spans = [max(batch) - min(batch) for batch in batches]
    assert 15 < np.mean(spans) < 60
    longest = [lengths[batch[0]] for batch in batches]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.25


def test_plan_sorts_rows_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_block", 10)
    source = Parts([np.random.default_rng(0).integers(1, 60, 200).tolist()])
    options = PackOptions(batch_size=7, order="none", shuffle=True).resolve()
    found = list_batches(plan_batches(source, options), source)
    assert found == slow_plan(source.lengths.tolist(), options)


def test_plan_names_the_first_of_the_longest() -> None:
    for values in ({}, {"window": 2}, {"shuffle": True}):
        with pytest.raises(OverlongError) as caught:
            make_plan([3, 30, 30, 12], max_tokens=10, **values)
        assert str(caught.value) == "sequence 1 has 30 tokens, --max-tokens allows 10"


def test_plan_keeps_batches_that_are_alike_together() -> None:
    table = make_plan([7] * 1000 + [3] * 1000, batch_size=10)[0].table
    assert table.counts.tolist() == [99, 1, 99, 1]
    assert table.starts.tolist() == [0, 990, 1000, 1990]
    assert table.num_tokens.tolist() == [70, 70, 30, 30]
    assert (table.num_batches, table.add_up(table.num_rows)) == (200, 2000)


# The same batches from counts of lengths, and from all lengths at once


def plan_by_array(source: Parts, options: PackOptions) -> Plan:
    """Plan in the way that is used for shuffled sequences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "needs_array", lambda _: True)
        plan = plan_batches(source, options)
    assert isinstance(plan.order, ArrayOrder)
    return plan


def assert_same_plan(source: Parts, options: PackOptions, cuts: list[int]) -> None:
    plan, expected = plan_batches(source, options), plan_by_array(source, options)
    assert not isinstance(plan.order, ArrayOrder)
    cuts = [cut for cut in cuts if cut < plan.num_batches]
    assert list_batches(plan, source, cuts) == list_batches(expected, source)
    assert plan.bucket_keys == expected.bucket_keys
    # A manifest has them in this order.
    for name in ("num_dropped_sequences", "num_dropped_tokens"):
        assert [*getattr(plan, name).items()] == [*getattr(expected, name).items()]


@settings(max_examples=100, deadline=None)
@given(
    source=draw_parts(FEW_OR_HUGE),
    options=pack_options(),
    many=st.booleans(),
    rows_per_range=st.sampled_from([1, 7, 1 << 22]),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_plan_by_counts_is_the_plan_by_array(
    source: Parts, options: PackOptions, many: bool, rows_per_range: int, cuts: list[int]
) -> None:
    options = replace(options, shuffle=False, seed=0)
    if many and options.max_tokens is not None and options.layout == "packed":
        options = replace(options, max_tokens=HUGE)
    assume(not needs_array(options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_per_block", 4)
        patch.setattr(LIMITS, "rows_per_block", 6)
        patch.setattr(LIMITS, "rows_per_range", rows_per_range)
        try:
            plan_by_array(source, options)
        except OverlongError as error:
            with pytest.raises(OverlongError) as caught:
                plan_batches(source, options)
            assert vars(caught.value) == vars(error)
            return
        assert_same_plan(source, options, cuts)


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
        {"layout": "padded", "buckets": (64, 128, 256), "last_batch": "drop", "drop_shorter": 3},
    ],
    ids=str,
)
def test_plan_by_counts_is_the_plan_by_array_for_many_sequences(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_block", 1 << 12)
    drawn = np.random.default_rng(0).lognormal(3, 1, 20_000).astype(np.int32).clip(1, 256)
    parts = Parts([some.tolist() for some in np.split(drawn, [5000, 5000, 12_345])])
    assert_same_plan(parts, PackOptions(**values).resolve(), [1, 2, 150])


def test_plan_reads_all_lengths_at_once_only_where_it_has_to() -> None:
    for values, expected in (
        ({}, False),
        ({"layout": "padded", "buckets": "auto"}, False),
        ({"window": 9}, False),
        ({"order": "none"}, False),
        ({"window": 9, "buckets": "auto"}, True),
        ({"order": "none", "buckets": "auto"}, True),
        ({"shuffle": True}, True),
        ({"layout": "varlen", "max_tokens": 9}, True),
        ({"layout": "varlen", "max_tokens": 9, "fill": "sequential"}, True),
    ):
        options = PackOptions(**values).resolve()
        assert needs_array(options) is expected, values
        plan = plan_batches(Parts([[5, 3, 2], [], [9]]), options)
        assert isinstance(plan.order, ArrayOrder) is expected, values
