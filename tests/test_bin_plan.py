"""The plan of varlen rows: splits, bins, their order, and the ledger, beside the slow one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batching_reference import Row, list_batches, slow_bins
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.bin_plan import plan_bins
from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.batching.selection import OverlongError

LENGTHS = st.lists(st.integers(1, 30), max_size=40)
OPTIONS = st.builds(
    PackOptions,
    layout=st.just("varlen"),
    max_tokens=st.integers(4, 32),
    packing=st.sampled_from([None, "best-fit", "sequential"]),
    overlong=st.sampled_from([None, "split", "drop", "error"]),
    shuffle=st.sampled_from([None, True, False]),
    seed=st.integers(0, 99),
    min_length=st.one_of(st.none(), st.integers(1, 6)),
    max_length=st.one_of(st.none(), st.integers(6, 30)),
)


def stored(lengths: list[int]) -> np.ndarray:
    """Give lengths as a store has them: int32, not to be written."""
    array = np.array(lengths, np.int32)
    array.flags.writeable = False
    return array


@settings(max_examples=100)
@given(LENGTHS, OPTIONS)
def test_plan_bins_is_the_slow_one(lengths: list[int], options: PackOptions) -> None:
    options = options.resolve()
    expected = slow_bins(lengths, options)
    if expected is None:
        with pytest.raises(OverlongError):
            plan_bins(stored(lengths), options)
        return
    plan = plan_bins(stored(lengths), options)
    assert list_batches(plan) == expected
    assert plan.num_batches == len(expected.rows)
    assert plan.lengths.dtype == np.int32
    assert plan.order.dtype == plan.batch_offsets.dtype == plan.widths.dtype == np.int64
    again = plan_bins(stored(lengths), options)
    assert list_batches(again) == expected


@settings(max_examples=50)
@given(LENGTHS, OPTIONS)
def test_plan_bins_holds_every_token_once_within_the_budget(
    lengths: list[int], options: PackOptions
) -> None:
    options = replace(options, overlong=None if options.overlong == "error" else options.overlong)
    options = options.resolve()
    capacity = options.max_tokens or 0
    plan = list_batches(plan_bins(stored(lengths), options))
    assert all(0 < sum(row[2] for row in batch) <= capacity for batch in plan.rows)
    pieces: dict[int, list[Row]] = {}
    for row in (row for batch in plan.rows for row in batch):
        pieces.setdefault(row[0], []).append(row)
    for index, rows in pieces.items():
        starts = range(0, lengths[index], capacity)
        whole = [(index, start, min(capacity, lengths[index] - start)) for start in starts]
        assert sorted(rows) == whole
    assert len(pieces) + sum(plan.num_dropped_sequences.values()) == len(lengths)
    num_kept = sum(lengths[index] for index in pieces)
    assert num_kept + sum(plan.num_dropped_tokens.values()) == sum(lengths)


def plan_rows(lengths: list[int], **options: object) -> list[list[Row]]:
    """Plan varlen rows and give what each holds."""
    resolved = PackOptions(layout="varlen", **options).resolve()  # type: ignore[arg-type]
    return list_batches(plan_bins(stored(lengths), resolved)).rows


def test_plan_bins_packs_best_fit_in_the_order_of_the_input() -> None:
    rows = plan_rows([2, 5, 3, 6, 4], max_tokens=10, shuffle=False)
    assert rows == [[(3, 0, 6), (4, 0, 4)], [(0, 0, 2), (1, 0, 5), (2, 0, 3)]]


def test_plan_bins_packs_one_row_after_another_where_sequential() -> None:
    rows = plan_rows([2, 5, 3, 6, 4, 1], max_tokens=10, packing="sequential")
    assert rows == [[(0, 0, 2), (1, 0, 5), (2, 0, 3)], [(3, 0, 6), (4, 0, 4)], [(5, 0, 1)]]


def test_plan_bins_splits_long_sequences_from_the_left() -> None:
    rows = plan_rows([1, 9, 8, 4], max_tokens=4, packing="sequential")
    assert rows == [
        [(0, 0, 1)],
        [(1, 0, 4)],
        [(1, 4, 4)],
        [(1, 8, 1)],
        [(2, 0, 4)],
        [(2, 4, 4)],
        [(3, 0, 4)],
    ]


def test_plan_bins_without_a_split_has_no_piece_starts() -> None:
    options = PackOptions(layout="varlen", max_tokens=9).resolve()
    assert plan_bins(stored([1, 9, 8]), options).piece_starts is None
    split = plan_bins(stored([1, 10]), options).piece_starts
    assert split is not None
    assert split.dtype == np.int32


def test_plan_bins_drops_or_refuses_the_overlong() -> None:
    lengths = stored([3, 2000, 5, 1500, 1])
    options = PackOptions(layout="varlen", max_tokens=1024, overlong="drop", min_length=2).resolve()
    plan = plan_bins(lengths, options)
    assert plan.num_dropped_sequences == {"min_length": 1, "overlong": 2}
    assert plan.num_dropped_tokens == {"min_length": 1, "overlong": 3500}
    message = r"^sequence 1 has 2,000 tokens, --max-tokens allows 1,024$"
    with pytest.raises(OverlongError, match=message):
        plan_bins(lengths, replace(options, overlong="error"))


@pytest.mark.parametrize("packing", ["best-fit", "sequential"])
def test_plan_bins_of_nothing_has_no_row(packing: str) -> None:
    plan = plan_bins(
        stored([]), PackOptions(layout="varlen", max_tokens=4, packing=packing).resolve()
    )
    assert plan.num_batches == 0
    assert list_batches(plan).rows == []


def test_plan_bins_shuffles_rows_anew_for_another_seed() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 300).tolist()
    plans = [plan_rows(lengths, max_tokens=64, seed=seed) for seed in (0, 0, 1, 2)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2] != plans[3]
    # Best fit alone would put the row of the longest sequence first.
    widest = [max(row[2] for row in batch) for batch in plans[0]]
    assert widest != sorted(widest, reverse=True)
