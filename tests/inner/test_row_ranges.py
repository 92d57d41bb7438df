"""The range of rows that a task gets, and how it finds them in the lengths of a store."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from batching_reference import Parts

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.plan import Plan, plan_batches
from seqpack_cli.batching.row_ranges import LengthRange, LengthsChangedError, WindowRange
from seqpack_cli.limits import LIMITS


def plan_parts(parts: list[list[int]], **options: Any) -> tuple[Plan, Parts]:
    source = Parts(parts)
    return plan_batches(source, PackOptions(**options).resolve()), source


def test_range_of_the_order_is_between_two_lengths() -> None:
    plan, _ = plan_parts([[5, 9, 5, 2], [], [5, 2, 5, 9]], batch_size=2)
    (rows,) = plan.cut([1, 3])
    assert rows.span == LengthRange(2, 4, longest=5, shortest=5, num_skipped=0, num_shortest=4)
    (rows,) = plan.cut([2, 4])
    assert rows.span == LengthRange(4, 4, longest=5, shortest=2, num_skipped=2, num_shortest=2)


def test_range_of_the_order_takes_equal_sequences_by_their_numbers() -> None:
    plan, source = plan_parts([[5, 5, 5], [5, 5, 9], [5, 5]], batch_size=2)
    (rows,) = plan.cut([1, 3])
    found = rows.find(source)
    assert found.indices.tolist() == [1, 2, 3, 4]
    assert found.lengths.tolist() == [5, 5, 5, 5]


def test_range_of_windows_reads_only_the_parts_it_needs() -> None:
    parts = [[1, 9], [2, 8], [3, 7], [], [4, 6], [5, 5]]
    plan, source = plan_parts(parts, batch_size=2, window=4, drop_shorter=2)
    (rows,) = plan.cut([2, 3])
    assert rows.span == WindowRange(4, 4, 2, 3, least=2, most=9, window=4)
    source.read.clear()
    assert rows.find(source).indices.tolist() == [5, 7]  # of 7 4 6 5
    assert source.read == [2, 4, 5]


def test_neighbours_share_one_pass_over_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_range", 6)
    plan, source = plan_parts([list(range(1, 21))], batch_size=2)
    planned = plan.cut(list(range(11)))
    spans = [rows.span for rows in planned]
    assert [(span.start, span.num_rows) for span in spans if isinstance(span, LengthRange)] == (
        [(0, 6)] * 3 + [(6, 6)] * 3 + [(12, 6)] * 3 + [(18, 2)]
    )
    source.read.clear()
    found = [rows.find(source).indices.tolist() for rows in planned]
    assert found == [[19 - first, 18 - first] for first in range(0, 20, 2)]
    assert source.read == [0] * 4


def test_rows_of_a_large_task_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "rows_per_range", 1)
    plan, source = plan_parts([list(range(1, 21))], batch_size=2)
    planned = plan.cut([0, 4, 5, 10])
    assert [rows.table.add_up(rows.table.num_rows) for rows in planned] == [8, 2, 10]
    assert len({rows.span for rows in planned}) == 3
    source.read.clear()
    assert [len(planned[0].find(source).indices) for _ in range(2)] == [8, 8]
    assert source.read == [0, 0]


@pytest.mark.parametrize("split", [False, True])
def test_task_of_shuffled_rows_takes_only_its_own_to_a_worker(split: bool) -> None:
    drawn = np.random.default_rng(0).integers(1, 50, 5000).tolist()
    values = {"layout": "varlen", "max_tokens": 30} if split else {"batch_size": 4}
    plan, source = plan_parts([drawn], **values, shuffle=True)
    for rows in plan.cut([0, 10, plan.num_batches]):
        sent = pickle.dumps(rows)
        found, received = rows.find(source), pickle.loads(sent).find(source)  # noqa: S301
        for name in vars(found):
            assert np.array_equal(getattr(found, name), getattr(received, name)), name
        assert (received.piece_starts is not None) == split
    assert len(pickle.dumps(plan.cut([3, 5])[0])) < 5000 < len(sent)


@pytest.mark.parametrize("values", [{}, {"window": 2}, {"order": "none"}], ids=str)
@pytest.mark.parametrize("changed", [[9, 5, 4, 3, 1], [9, 5, 3, 1, 1], [9, 6, 3, 3, 1]], ids=str)
def test_rows_are_not_found_in_other_lengths(values: dict[str, Any], changed: list[int]) -> None:
    plan, _ = plan_parts([[9, 5, 3, 3, 1]], batch_size=2, drop_shorter=2, **values)
    with pytest.raises(LengthsChangedError):
        for rows in plan.cut([0, 2]):
            rows.find(Parts([changed]))
