"""Batches dealt to ranks: the same number to each, none lost, balanced by cost if asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from epoch_reference import slow_deal, slow_put_first
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching.order import shuffled
from seqpack_cli.training.rank_steps import STEPS_PER_WINDOW, deal_steps, put_first


@st.composite
def orders(draw: st.DrawFn) -> np.ndarray:
    """Draw some of the numbers below 600, in any order; often more than a window holds."""
    num_batches = draw(st.one_of(st.integers(0, 20), st.integers(0, 500)))
    return shuffled(600, seed=draw(st.integers(0, 99)))[:num_batches]


def draw_costs(num_batches: int, seed: int = 0) -> np.ndarray:
    """Draw costs like those of batches with fixed rows: most small, some many times larger."""
    return np.random.default_rng(seed).lognormal(8, 1, num_batches).astype(np.int64)


def draw_ties(seed: int) -> np.ndarray:
    """Draw costs that are often equal."""
    return np.random.default_rng(seed).integers(0, 10, 600)


@settings(max_examples=60)
@given(
    orders(),
    st.integers(1, 9),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 99)),
    st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)
def test_deal_steps_agrees_with_the_slow_way(
    order: np.ndarray,
    world_size: int,
    drop_last: bool,
    costs_seed: int | None,
    seed: int | None,
) -> None:
    before = order.copy()
    costs = None if costs_seed is None else draw_ties(costs_seed)
    found = deal_steps(order, world_size, drop_last=drop_last, costs=costs, seed=seed)
    slow = slow_deal(
        order.tolist(),
        world_size,
        drop_last=drop_last,
        costs=None if costs is None else costs.tolist(),
        seed=seed,
    )
    assert found.tolist() == slow
    assert found.dtype == np.int64
    assert found.shape == (len(slow), world_size)
    assert np.array_equal(order, before)


@settings(max_examples=60)
@given(orders(), st.integers(1, 40), st.booleans(), st.booleans(), st.integers(0, 99))
def test_steps_hold_each_batch_once_but_for_what_is_stated(
    order: np.ndarray, world_size: int, drop_last: bool, balance: bool, seed: int
) -> None:
    costs = draw_costs(600) if balance else None
    steps = deal_steps(order, world_size, drop_last=drop_last, costs=costs, seed=seed)
    found, numbers = Counter(steps.ravel().tolist()), order.tolist()
    if drop_last:
        num_kept = len(numbers) - len(numbers) % world_size
        assert found == Counter(numbers[:num_kept])  # the last of the order are left out
        return
    extra = found - Counter(numbers)
    assert set(found) == set(numbers)
    assert extra.total() == -len(numbers) % world_size
    if len(numbers) >= world_size:
        assert extra == Counter(numbers[: extra.total()])  # the first of the order occur twice


def test_unbalanced_steps_follow_the_order() -> None:
    order = np.array([7, 2, 9, 4, 0])
    assert deal_steps(order, 2).tolist() == [[7, 2], [9, 4], [0, 7]]
    assert deal_steps(order, 2, drop_last=True).tolist() == [[7, 2], [9, 4]]
    assert deal_steps(order, 2, seed=5).tolist() == deal_steps(order, 2).tolist()
    assert deal_steps(order, 1).tolist() == [[7], [2], [9], [4], [0]]


def test_fewer_batches_than_ranks_come_again_and_again() -> None:
    assert deal_steps(np.array([4, 6]), 5).tolist() == [[4, 6, 4, 6, 4]]
    assert deal_steps(np.array([4, 6]), 5, drop_last=True).shape == (0, 5)
    costs = np.array([0, 0, 0, 0, 3, 0, 5])
    balanced = deal_steps(np.array([4, 6]), 5, costs=costs, seed=0)
    assert balanced.tolist() == [[4, 6, 4, 6, 4]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("costs", [None, np.array([1, 2])])
def test_no_batches_are_no_steps(drop_last: bool, costs: np.ndarray | None) -> None:
    none = np.array([], np.int64)
    assert deal_steps(none, 3, drop_last=drop_last, costs=costs, seed=0).shape == (0, 3)


def test_steps_never_change() -> None:
    # Golden: continued runs need exactly these.
    order, costs = np.arange(11), np.array([5, 40, 12, 7, 7, 33, 2, 18, 25, 9, 1])
    balanced = deal_steps(order, 3, costs=costs, seed=0)
    assert balanced.tolist() == [[7, 2, 3], [0, 6, 4], [8, 1, 5], [9, 10, 0]]
    in_order = deal_steps(order, 3, costs=costs, drop_last=True)
    assert in_order.tolist() == [[1, 5, 8], [2, 3, 7], [6, 4, 0]]


def test_balanced_steps_hold_batches_of_about_one_cost() -> None:
    costs, order = draw_costs(20_000), shuffled(20_000, seed=1)
    plain = costs[deal_steps(order, 8)]
    balanced = costs[deal_steps(order, 8, costs=costs, seed=0)]
    spread = np.ptp(balanced, axis=1).sum() / np.ptp(plain, axis=1).sum()
    assert spread < 0.1
    # At each step all ranks wait for the most expensive batch; 1.10 without the tail.
    assert balanced.max(axis=1).sum() < 1.05 * balanced.mean(axis=1).sum()
    assert plain.max(axis=1).sum() > 2 * plain.mean(axis=1).sum()


def test_ranks_take_turns_with_the_largest() -> None:
    costs = np.arange(1, 8 * 1000 + 1)
    steps = deal_steps(shuffled(8000, seed=2), 8, costs=np.append(costs, 0), seed=3)
    largest = costs[steps].argmax(axis=1)
    assert np.bincount(largest, minlength=8).tolist() == [125] * 8
    totals = costs[steps].sum(axis=0)
    assert np.ptp(totals) < totals.mean() / 1000


def test_balanced_steps_keep_to_their_window() -> None:
    num_steps = 3 * STEPS_PER_WINDOW + 6  # 198, a 32nd of which is 6
    order, costs = shuffled(num_steps * 4, seed=4), draw_costs(1000)
    steps = deal_steps(order, 4, costs=costs)
    order = put_first(order, costs, 6 * 4)  # the most expensive of all are balanced together
    assert sorted(steps[:6].ravel().tolist()) == sorted(order[:24].tolist())
    for number in range(3):
        window = slice(6 + number * STEPS_PER_WINDOW, 6 + (number + 1) * STEPS_PER_WINDOW)
        batches = order[window.start * 4 : window.stop * 4]
        assert sorted(steps[window].ravel().tolist()) == sorted(batches.tolist())
        assert (np.diff(costs[steps[window]].max(axis=1)) <= 0).all()  # unshuffled, largest first


def test_balanced_steps_are_in_an_order_of_the_seed() -> None:
    order, costs = shuffled(4000, seed=5), draw_costs(4000)
    one, again, other = (deal_steps(order, 4, costs=costs, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert sorted(map(sorted, one.tolist())) == sorted(map(sorted, other.tolist()))
    totals = costs[one].sum(axis=1)
    assert abs(np.corrcoef(totals, np.arange(1000))[0, 1]) < 0.1
    assert abs(np.corrcoef(totals[1:], totals[:-1])[0, 1]) < 0.1


def test_steps_of_no_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^world_size is 0, expected at least 1$"):
        deal_steps(np.arange(3), 0)


@settings(max_examples=60)
@given(orders(), st.integers(0, 99), st.integers(0, 12))
def test_put_first_agrees_with_the_slow_way(
    order: np.ndarray, costs_seed: int, num_first: int
) -> None:
    before, costs = order.copy(), draw_ties(costs_seed)
    found = put_first(order, costs, num_first)
    assert found.tolist() == slow_put_first(order.tolist(), costs.tolist(), num_first)
    assert np.array_equal(order, before)


def test_put_first_prefers_the_first_of_equal_batches() -> None:
    costs = np.array([4, 4, 9, 4])
    assert put_first(np.array([3, 1, 2, 0]), costs, 2).tolist() == [3, 2, 1, 0]
