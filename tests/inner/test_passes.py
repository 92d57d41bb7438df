"""Passes of stores, visits of documents, and the rounds that they are spread over."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from batching_reference import slow_mix, slow_rounds, slow_visits
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.passes import (
    MAX_PASSES,
    count_rounds,
    count_visits,
    find_first_rounds,
    find_passes,
    is_in_round,
    parse_passes,
    resolve_stores,
    spell_by_position,
)
from seqpack_cli.errors import MAX_SEED, OptionError
from seqpack_cli.shards.store_passes import name_by_position

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=20)
SEEDS = st.integers(0, MAX_SEED)
PASSES = st.fractions(min_value=Fraction(1, 1000), max_value=6, max_denominator=1000)


@given(HASHES, PASSES, SEEDS)
def test_visits_agree_with_the_slow_ones(hashes: list[int], passes: Fraction, seed: int) -> None:
    visits = count_visits(np.array(hashes, np.uint64), passes, seed)
    assert visits.dtype == np.int32
    assert visits.tolist() == [slow_visits(each, passes, seed) for each in hashes]


def test_a_part_of_a_pass_ends_before_its_bound() -> None:
    hashes = np.array([5], np.uint64)
    bound = slow_mix(5, 0, "passes")
    for numerator, expected in ((bound, 1), (bound + 1, 2)):
        passes = 1 + Fraction(numerator, 2**64)
        assert count_visits(hashes, passes, 0).tolist() == [expected]


@given(HASHES, st.integers(2, 40) | st.just(MAX_PASSES), SEEDS, st.data())
def test_rounds_agree_with_the_slow_ones(
    hashes: list[int], num_rounds: int, seed: int, data: st.DataObject
) -> None:
    count = st.integers(0, num_rounds)
    visits = data.draw(st.lists(count, min_size=len(hashes), max_size=len(hashes)))
    number = data.draw(st.integers(0, num_rounds - 1))
    first_rounds = find_first_rounds(np.array(hashes, np.uint64), num_rounds, seed)
    found = is_in_round(first_rounds, np.array(visits, np.int16), number, num_rounds).tolist()
    rounds = [
        slow_rounds(each, times, num_rounds, seed)
        for each, times in zip(hashes, visits, strict=True)
    ]
    assert list(map(len, rounds)) == visits
    assert found == [number in each for each in rounds]


def test_each_round_has_its_share_of_the_visits() -> None:
    hashes = np.arange(40_000, dtype=np.uint64)
    for passes in (Fraction(1, 4), Fraction(1), Fraction(5, 2), Fraction(4)):
        visits = count_visits(hashes, passes, 0)
        assert abs(visits.mean() - passes) < 0.01
        first_rounds = find_first_rounds(hashes, 4, 0)
        rounds = [is_in_round(first_rounds, visits, number, 4) for number in range(4)]
        assert (sum(each.astype(int) for each in rounds) == visits).all()
        assert np.abs([each.mean() - passes / 4 for each in rounds]).max() < 0.01


def test_a_larger_fraction_takes_the_documents_of_a_smaller_one_too() -> None:
    hashes = np.arange(1000, dtype=np.uint64)
    few, many = (count_visits(hashes, Fraction(share), 3) for share in ("0.2", "0.3"))
    assert (few <= many).all()
    assert few.sum() < many.sum()


def test_rounds_are_the_most_visits() -> None:
    assert count_rounds([Fraction(1, 2)]) == count_rounds([]) == 1
    assert count_rounds([Fraction(2), Fraction(1, 2)]) == 2
    assert count_rounds([Fraction(2), Fraction("2.000000000001")]) == 3


@given(st.lists(st.tuples(st.integers(1, 10**13), st.integers(1, 1000)), min_size=1), PASSES)
def test_shares_of_tokens_become_passes(
    stores: list[tuple[int, int]], max_passes: Fraction
) -> None:
    tokens = [num_tokens for num_tokens, _ in stores]
    total = sum(part for _, part in stores)
    shares = [Fraction(part, total) for _, part in stores]
    named = {f"store {number}": share for number, share in enumerate(shares)}
    both = list(zip(tokens, shares, strict=True))
    factor = min(max_passes * num_tokens / share for num_tokens, share in both)
    expected = [math.floor(factor * share / num_tokens * 10**12) for num_tokens, share in both]
    if 0 in expected:
        with pytest.raises(OptionError, match="expected more"):
            find_passes(tokens, named, max_passes)
        return
    passes = find_passes(tokens, named, max_passes)
    assert passes == [Fraction(number, 10**12) for number in expected]
    assert max(passes) == Fraction(math.floor(max_passes * 10**12), 10**12)


def test_a_share_of_a_store_without_tokens_is_refused() -> None:
    with pytest.raises(OptionError) as raised:
        find_passes([5, 0], {"a": Fraction(3, 4), "b": Fraction(1, 4)}, Fraction(1))
    assert raised.value.message == "--share: b has no token left for its share of 0.25"
    assert raised.value.hint == "leave out the store, or the options that leave out its sequences"


def test_a_share_too_small_for_passes_is_refused() -> None:
    with pytest.raises(OptionError) as raised:
        find_passes([1, 10**9], {"a": 1 - Fraction(1, 10**6), "b": Fraction(1, 10**6)}, Fraction(1))
    message = "--share: b would have less than 0.000000000001 passes, expected more"
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("A=2", ["A", "B"], "1=2"),
        ("B=0.5,A=3", ["A", "B"], "1=3,2=0.5"),
        ("2=0.5", ["A", "B"], "2=0.5"),
        ("2=3,1=5", ["2", "1"], "1=3,2=5"),  # names
        ("2=3", ["A", "A", "2"], "3=3"),
        ("2=3", ["2", "2", "A"], "2=3"),
    ],
)
def test_stores_are_named_by_folder_or_by_position(
    text: str, names: list[str], expected: str
) -> None:
    passes = resolve_stores(parse_passes(text), names, "--passes")
    spelled = spell_by_position(passes)
    assert spelled == expected
    positions = [str(place) for place in range(1, len(names) + 1)]
    assert resolve_stores(parse_passes(spelled), positions, "--passes") == passes


def test_a_store_may_be_named_by_a_link_to_it() -> None:
    names, links = ["A", "B", "3", "4"], ["newest", "B", "x", "x"]
    found = resolve_stores({"newest": Fraction(2), "B": Fraction(3)}, names, "--passes", links)
    assert found == [2, 3, None, None]
    with pytest.raises(OptionError) as raised:
        resolve_stores({"x": Fraction(2)}, names, "--passes", links)
    assert raised.value.message == (
        "--passes: found 'x', the name of 2 stores, expected a position from 1 to 4"
    )


@pytest.mark.parametrize(
    ("text", "names", "message", "hint"),
    [
        (
            "C=2",
            ["A", "B"],
            "--passes: no store is named 'C' (found: 'A', 'B')",
            "name a store by its folder, or by its position from 1 to 2",
        ),
        (
            "3=2",
            ["A", "B"],
            "--passes: no store is named '3' (found: 'A', 'B')",
            "name a store by its folder, or by its position from 1 to 2",
        ),
        (
            "A=2",
            ["A", "B", "A"],
            "--passes: found 'A', the name of 2 stores, expected a position from 1 to 3",
            "name them by position: 1, 3",
        ),
        (
            "A=2,1=0.50",
            ["A", "B"],
            "--passes: found '1' for store 1, 'A', expected each store once",
            "leave out 1=0.5",
        ),
        (
            "3=7,2=3",
            ["A", "A", "2"],
            "--passes: found '2' for store 3, '2', expected each store once",
            "leave out 2=3",
        ),
    ],
)
def test_stores_that_are_not_found_are_refused(
    text: str, names: list[str], message: str, hint: str
) -> None:
    with pytest.raises(OptionError) as raised:
        resolve_stores(parse_passes(text), names, "--passes")
    assert raised.value.message == message
    assert raised.value.hint == hint


def test_each_store_needs_a_share() -> None:
    options = PackOptions(share="A=rest").resolve()
    with pytest.raises(OptionError) as raised:
        name_by_position(options, ["A", "B", "C"])
    assert raised.value.message == "--share: no share for 'B', 'C', expected one for each store"
    assert raised.value.hint == "pass smaller shares, with B=rest for what they leave"


def test_passes_above_the_maximum_are_refused() -> None:
    assert parse_passes("A=10000") == {"A": MAX_PASSES}
    with pytest.raises(OptionError, match=r"found 10000\.1, expected .* at most 10,000"):
        parse_passes("A=10000.1")
