"""The plan of a whole store: what is kept, in which order, in which batch, and the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batching_reference import list_batches, round_up, slow_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching import length_order
from seqpack_cli.batching.batch_plan import BatchPlan, plan_batches
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import OverlongError

LENGTHS = st.lists(st.integers(1, 30), max_size=45)


@st.composite
def pack_options(draw: st.DrawFn) -> PackOptions:
    """Options of `packed` and `padded` that can go together, resolved."""
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
    overlong = None
    if max_tokens is not None or isinstance(buckets, tuple):
        overlong = draw(st.sampled_from([None, "drop", "drop", "error"]))
    order = draw(st.sampled_from(["length", "length", "none"]))
    return PackOptions(
        layout=layout,
        batch_size=batch_size,
        max_tokens=max_tokens,
        order=order,
        window=draw(st.none() | st.integers(1, 20)) if order == "length" else None,
        shuffle=draw(st.sampled_from([None, True])),
        seed=draw(st.integers(0, 99)),
        buckets=buckets,
        num_buckets=draw(st.none() | st.integers(1, 4)) if buckets == "auto" else None,
        overlong=overlong,
        last_batch=draw(st.sampled_from(last_batches)),
        min_length=draw(st.none() | st.integers(1, 6)),
        max_length=draw(st.none() | st.integers(6, 30)),
        pad_to_multiple=multiple,
    ).resolve()


def stored(lengths: list[int]) -> np.ndarray:
    """Give lengths as a store has them: int32, not to be written."""
    array = np.array(lengths, np.int32)
    array.flags.writeable = False
    return array


def make_plan(lengths: list[int], **options: Any) -> BatchPlan:
    """Plan with options that are not resolved yet."""
    return plan_batches(stored(lengths), PackOptions(**options).resolve())


def batches_of(plan: BatchPlan) -> list[list[int]]:
    """Give the sequence indices of each batch."""
    return [[index for index, _, _ in batch] for batch in list_batches(plan).rows]


@settings(max_examples=100)
@given(LENGTHS, pack_options())
def test_plan_is_the_slow_one(lengths: list[int], options: PackOptions) -> None:
    expected = slow_plan(lengths, options)
    if expected is None:
        with pytest.raises(OverlongError):
            plan_batches(stored(lengths), options)
        return
    plan = plan_batches(stored(lengths), options)
    assert list_batches(plan) == expected
    assert plan.num_batches == len(expected.rows)
    assert plan.piece_starts is None
    assert plan.lengths.dtype == np.int32
    assert plan.order.dtype == plan.batch_offsets.dtype == np.int64
    assert plan.widths.dtype == plan.num_filler_rows.dtype == np.int64


@settings(max_examples=50)
@given(LENGTHS, pack_options())
def test_plan_keeps_to_its_limits_and_its_ledger_adds_up(
    lengths: list[int], options: PackOptions
) -> None:
    if options.overlong != "drop" and (options.max_tokens or isinstance(options.buckets, tuple)):
        options = replace(options, overlong="drop")
    plan = list_batches(plan_batches(stored(lengths), options))
    kept = [row for batch in plan.rows for row in batch]
    assert all(start == 0 and length == lengths[index] for index, start, length in kept)
    assert len({index for index, _, _ in kept}) == len(kept)
    assert len(kept) + sum(plan.num_dropped_sequences.values()) == len(lengths)
    num_tokens = sum(length for _, _, length in kept)
    assert num_tokens + sum(plan.num_dropped_tokens.values()) == sum(lengths)
    for rows, width, filler in zip(plan.rows, plan.widths, plan.num_filler_rows, strict=True):
        sizes = [length for _, _, length in rows]
        assert sizes
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] <= width
        assert width % options.pad_to_multiple == 0
        assert options.batch_size is None or len(rows) + filler <= options.batch_size
        padded = options.layout == "padded"
        cost = (len(rows) + filler) * width if padded else sum(sizes)
        assert options.max_tokens is None or cost <= options.max_tokens
        if options.buckets is None:
            assert width == round_up(sizes[0], options.pad_to_multiple)
        elif isinstance(options.buckets, tuple):
            assert {min(key for key in options.buckets if key >= size) for size in sizes} == {width}


@settings(max_examples=60)
@given(LENGTHS, pack_options())
def test_plan_with_padded_last_batches_has_one_shape_per_bucket(
    lengths: list[int], options: PackOptions
) -> None:
    options = replace(options, layout="padded", buckets="auto", num_buckets=3, last_batch="pad")
    plan = plan_batches(stored(lengths), replace(options, overlong="drop", max_tokens=64))
    num_rows = np.diff(plan.batch_offsets) + plan.num_filler_rows
    shapes = set(zip(plan.widths.tolist(), num_rows.tolist(), strict=True))
    assert len(shapes) == len(plan.bucket_keys or []) <= 3
    assert {width for width, _ in shapes} == set(plan.bucket_keys or [])
    for width, rows in shapes:
        assert rows == min(options.batch_size or 64, 64 // width)


def test_plan_names_every_reason_for_a_drop() -> None:
    lengths = [1, 2, 5, 5, 5, 9, 30, 40]
    options = {"batch_size": 3, "min_length": 2, "max_length": 39, "last_batch": "drop"}
    plan = make_plan(lengths, **options, max_tokens=20, overlong="drop")
    assert batches_of(plan) == [[5, 2, 3]]
    reasons = ("min_length", "max_length", "overlong", "last_batch")
    assert plan.num_dropped_sequences == dict(zip(reasons, (1, 1, 1, 2), strict=True))
    assert plan.num_dropped_tokens == dict(zip(reasons, (1, 40, 30, 7), strict=True))


def test_plan_keeps_a_full_last_batch() -> None:
    plan = make_plan([3, 2, 1, 1], batch_size=2, last_batch="drop")
    assert batches_of(plan) == [[0, 1], [2, 3]]
    assert plan.num_dropped_sequences == {"last_batch": 0}
    plan = make_plan([5, 5, 3, 1, 1], max_tokens=5, last_batch="drop")
    assert batches_of(plan) == [[0], [1], [2, 3, 4]]


def test_plan_keeps_the_limits_inclusive() -> None:
    assert batches_of(make_plan([1, 2, 3, 4], min_length=2, max_length=3)) == [[2, 1]]
    assert batches_of(make_plan([1, 2, 3, 4], max_tokens=4)) == [[3], [2], [1, 0]]
    assert batches_of(make_plan([1, 4, 5, 3], buckets=(2, 4))) == [[1, 3], [0]]


def test_plan_of_nothing_has_no_batch() -> None:
    for options in ({}, {"buckets": "auto"}, {"buckets": (4,)}, {"shuffle": True, "max_tokens": 4}):
        for last_batch in ("keep", "drop"):
            plan = make_plan([], **options, last_batch=last_batch)
            assert plan.num_batches == 0
            assert batches_of(plan) == []
    assert make_plan([3], max_length=2).num_batches == 0


def test_plan_pads_the_last_batch_with_empty_rows() -> None:
    plan = make_plan([3, 2, 1], layout="padded", batch_size=2, last_batch="pad")
    assert batches_of(plan) == [[0, 1], [2]]
    assert plan.num_filler_rows.tolist() == [0, 1]
    assert plan.widths.tolist() == [3, 1]


def test_plan_starts_with_the_largest_bucket() -> None:
    options = {"layout": "padded", "max_tokens": 16, "order": "none", "last_batch": "pad"}
    plan = make_plan([2, 7, 1, 8, 4, 2, 2], buckets=(4, 8, 12, 16), **options)
    assert batches_of(plan) == [[3, 1], [4, 0, 5, 2], [6]]
    assert plan.widths.tolist() == [8, 4, 4]
    assert plan.num_filler_rows.tolist() == [0, 0, 3]
    assert plan.bucket_keys == [4, 8, 12, 16]


def test_plan_goes_on_behind_a_bucket_without_batches() -> None:
    assert batches_of(make_plan([1, 1], buckets=(1, 2, 4))) == [[0, 1]]
    plan = make_plan([4, 1, 1, 2], buckets=(1, 2, 4), batch_size=2, last_batch="drop")
    assert batches_of(plan) == [[1, 2]]
    assert plan.num_dropped_tokens == {"last_batch": 6}
    assert plan.bucket_keys == [1, 2, 4]


def test_plan_does_not_widen_a_batch_by_the_dropped_one_behind_it() -> None:
    options = {"layout": "padded", "order": "none", "max_tokens": 10, "last_batch": "drop"}
    plan = make_plan([1, 1, 1, 1, 5], **options)
    assert batches_of(plan) == [[0, 1, 2, 3]]
    assert plan.widths.tolist() == [1]


def test_plan_rounds_widths_beyond_32_bits() -> None:
    options = {"layout": "padded", "pad_to_multiple": 8, "batch_size": 2}
    plan = make_plan([2**31 - 1, 2**31 - 7, 2**31 - 2], **options)
    assert batches_of(plan) == [[0, 2], [1]]
    assert plan.widths.tolist() == [2**31, 2**31]


def test_plan_counts_the_cells_of_rounded_rows() -> None:
    plan = make_plan([5, 5, 5, 3], layout="padded", max_tokens=16, pad_to_multiple=8)
    assert batches_of(plan) == [[0, 1], [2, 3]]
    assert plan.widths.tolist() == [8, 8]


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
        make_plan(lengths, buckets=(8, 16), overlong="error")
    assert batches_of(make_plan(lengths, max_tokens=10, max_length=10)) == [[1]]
    plan = make_plan(lengths, buckets=(8, 16))
    assert batches_of(plan) == [[1]]
    assert plan.num_dropped_tokens == {"overlong": 1130}


def test_plan_follows_from_its_seed() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 500).tolist()
    for options in ({"batch_size": 8}, {"max_tokens": 200, "window": 50}, {"buckets": "auto"}):
        plans = [
            list_batches(make_plan(lengths, shuffle=True, seed=seed, **options))
            for seed in (0, 0, 1)
        ]
        assert plans[0] == plans[1]
        assert plans[0] != plans[2]
        unshuffled = [list_batches(make_plan(lengths, seed=seed, **options)) for seed in (0, 1)]
        assert unshuffled[0] == unshuffled[1] != plans[0]


def test_plan_shuffles_sequences_before_windows_and_batches_after() -> None:
    lengths = list(range(1, 401))
    plan = make_plan(lengths, batch_size=4, shuffle=True, window=40)
    batches = batches_of(plan)
    # Within a window of 40 of 400 lengths, four neighbours span about 40; four at random 240.
    spans = [max(batch) - min(batch) for batch in batches]
    assert 15 < np.mean(spans) < 60
    longest = [lengths[batch[0]] for batch in batches]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.25


def test_plan_sorts_rows_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_order, "ROWS_PER_BLOCK", 10)
    lengths = np.random.default_rng(0).integers(1, 60, 200).tolist()
    options = PackOptions(batch_size=7, order="none", shuffle=True).resolve()
    assert list_batches(plan_batches(stored(lengths), options)) == slow_plan(lengths, options)
