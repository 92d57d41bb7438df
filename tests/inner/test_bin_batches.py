"""The plan of varlen rows, compared with a slow one: splits, bins, their order, and the ledger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batching_reference import Parts, Row, list_batches, slow_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.length_counts import SourceCounts
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import count_rows, count_source, plan_batches
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.selection import OverlongError

LENGTHS = st.lists(st.integers(1, 30), max_size=40)
OPTIONS = st.builds(
    PackOptions,
    layout=st.just("varlen"),
    max_tokens=st.integers(4, 32),
    fill=st.sampled_from([None, "best-fit", "sequential"]),
    overflow=st.sampled_from([None, "split", "drop", "error"]),
    shuffle=st.sampled_from([None, True, False]),
    drop_shorter=st.one_of(st.none(), st.integers(1, 6)),
    drop_longer=st.one_of(st.none(), st.integers(6, 30)),
).flatmap(
    lambda options: st.integers(0, 99 * options.resolve().shuffle).map(
        lambda seed: replace(options, seed=seed)
    )
)


@settings(max_examples=100)
@given(LENGTHS, OPTIONS)
def test_bins_agree_with_the_slow_ones(lengths: list[int], options: PackOptions) -> None:
    options, source = options.resolve(), Parts([lengths[:9], lengths[9:]])
    expected = slow_plan(lengths, options)
    if expected is None:
        with pytest.raises(OverlongError):
            plan_batches(source, options)
        return
    plan = plan_batches(source, options)
    assert list_batches(plan, source) == expected
    assert plan.num_batches == len(expected.rows)
    counts = SourceCounts(count_source(source))
    assert count_rows(source, counts, options) == sum(map(len, expected.rows))
    assert list_batches(plan_batches(source, options), source) == expected


@settings(max_examples=50)
@given(LENGTHS, OPTIONS)
def test_bins_hold_every_token_once_within_the_budget(
    lengths: list[int], options: PackOptions
) -> None:
    options = replace(options, overflow=None if options.overflow == "error" else options.overflow)
    options = options.resolve()
    capacity = options.max_tokens or 0
    source = Parts([lengths])
    plan = list_batches(plan_batches(source, options), source)
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
    """Plan varlen rows; return what each holds."""
    resolved = PackOptions(layout="varlen", **options).resolve()  # type: ignore[arg-type]
    source = Parts([lengths])
    return list_batches(plan_batches(source, resolved), source).rows


def test_bins_pack_best_fit_in_the_order_of_the_input() -> None:
    rows = plan_rows([2, 5, 3, 6, 4], max_tokens=10, shuffle=False)
    assert rows == [[(3, 0, 6), (4, 0, 4)], [(0, 0, 2), (1, 0, 5), (2, 0, 3)]]


def test_bins_pack_one_row_after_another_where_sequential() -> None:
    rows = plan_rows([2, 5, 3, 6, 4, 1], max_tokens=10, fill="sequential")
    assert rows == [[(0, 0, 2), (1, 0, 5), (2, 0, 3)], [(3, 0, 6), (4, 0, 4)], [(5, 0, 1)]]


def test_batch_size_counts_rows_not_the_sequences_in_one() -> None:
    options = PackOptions(layout="varlen", max_tokens=4, batch_size=2, fill="sequential")
    order = plan_batches(Parts([[1] * 9]), options.resolve()).order
    assert isinstance(order, ArrayOrder)
    assert order.rows.row_indices is not None
    assert order.rows.row_indices.tolist() == [0] * 4 + [1] * 4 + [0]


def test_streams_keep_their_numbers_in_the_last_batch_which_the_first_ones_do_not_reach() -> None:
    options = PackOptions(layout="streams", max_tokens=2, batch_size=3)
    order = plan_batches(Parts([[9]]), options.resolve()).order
    assert isinstance(order, ArrayOrder)
    assert order.rows.piece_starts is not None
    assert order.rows.row_indices is not None
    assert order.rows.piece_starts.tolist() == [0, 2, 6, 4, 8]
    assert order.rows.row_indices.tolist() == [0, 1, 2, 1, 2]


def test_bins_split_long_sequences_from_the_left() -> None:
    rows = plan_rows([1, 9, 8, 4], max_tokens=4, fill="sequential")
    assert rows == [
        [(0, 0, 1)],
        [(1, 0, 4)],
        [(1, 4, 4)],
        [(1, 8, 1)],
        [(2, 0, 4)],
        [(2, 4, 4)],
        [(3, 0, 4)],
    ]


@pytest.mark.parametrize(("longest", "split"), [(9, False), (10, True)])
def test_bins_without_a_split_have_no_piece_starts(longest: int, split: bool) -> None:
    options = PackOptions(layout="varlen", max_tokens=9).resolve()
    order = plan_batches(Parts([[1, longest]]), options).order
    assert isinstance(order, ArrayOrder)
    assert (order.rows.piece_starts is not None) == split


def test_bins_drop_or_refuse_the_overlong() -> None:
    source = Parts([[3, 2000, 5, 1500, 1]])
    options = PackOptions(
        layout="varlen", max_tokens=1024, overflow="drop", drop_shorter=2
    ).resolve()
    plan = plan_batches(source, options)
    assert plan.num_dropped_sequences == {"drop_shorter": 1, "overflow": 2}
    assert plan.num_dropped_tokens == {"drop_shorter": 1, "overflow": 3500}
    message = r"^sequence 1 has 2,000 tokens, --max-tokens allows 1,024$"
    with pytest.raises(OverlongError, match=message):
        plan_batches(source, replace(options, overflow="error"))


@pytest.mark.parametrize("fill", ["best-fit", "sequential"])
def test_bins_of_nothing_have_no_row(fill: str) -> None:
    options = PackOptions(layout="varlen", max_tokens=4, fill=fill).resolve()
    plan = plan_batches(Parts([]), options)
    assert plan.num_batches == 0
    assert plan_batches(Parts([[3], []]), replace(options, drop_longer=2)).num_batches == 0


def test_bins_are_shuffled_anew_for_another_seed() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 300).tolist()
    plans = [plan_rows(lengths, max_tokens=64, seed=seed) for seed in (0, 0, 1, 2)]
    assert plans[0] == plans[1]
    assert plans[0] != plans[2] != plans[3]
    # Best fit alone would put the row of the longest sequence first.
    widest = [max(row[2] for row in batch) for batch in plans[0]]
    assert widest != sorted(widest, reverse=True)


def test_streams_without_a_row_take_no_memory() -> None:
    options = PackOptions(layout="streams", max_tokens=4, batch_size=2**31 - 1).resolve()
    plan = plan_batches(Parts([[3, 7]]), options)
    assert isinstance(plan.order, ArrayOrder)
    assert plan.order.rows.row_indices.tolist() == [2**31 - 4, 2**31 - 4, 2**31 - 3, 2**31 - 2]
    assert plan.table.num_cells.tolist() == [4 * (2**31 - 1)]
