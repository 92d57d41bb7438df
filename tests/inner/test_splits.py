"""Documents are assigned to splits by their hashes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from batching_reference import slow_mix, slow_split
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.options import PackOptions, parse_splits
from seqpack_cli.batching.splits import Splits
from seqpack_cli.errors import MAX_SEED, OptionError

EXAMPLE = "write it like --split train=0.98,validation=0.01,test=0.01"
SHARES = st.lists(st.integers(1, 10**6), min_size=2, max_size=5)


def parse(**options: Any) -> Splits:
    splits = parse_splits(PackOptions(**options))
    assert splits is not None
    return splits


@given(SHARES, st.lists(st.integers(0, 2**64 - 1), max_size=30), st.integers(0, MAX_SEED))
def test_splits_agree_with_the_slow_ones(parts: list[int], hashes: list[int], seed: int) -> None:
    shares = tuple(Fraction(part, sum(parts)) for part in parts)
    splits = Splits(tuple(map(str, range(len(parts)))), shares, seed)
    found = splits.assign(np.array(hashes, np.uint64))
    assert found.dtype == np.int16
    assert found.tolist() == [slow_split(each, shares, seed) for each in hashes]


def test_a_split_ends_before_its_bound() -> None:
    hashes = np.array([5], np.uint64)
    bound = slow_mix(5, 0, "split")
    for numerator, expected in ((bound, 1), (bound + 1, 0)):
        share = Fraction(numerator, 2**64)
        assert Splits(("a", "b"), (share, 1 - share)).assign(hashes).tolist() == [expected]


def test_each_split_has_its_share() -> None:
    splits = parse(split="a=0.7,b=rest,c=0.01")
    counts = np.bincount(splits.assign(np.arange(100_000, dtype=np.uint64)))
    assert np.abs(counts / 100_000 - [0.7, 0.29, 0.01]).max() < 0.005


def test_no_document_leaves_a_split_that_grows_at_its_end() -> None:
    hashes = np.arange(10_000, dtype=np.uint64)
    before = parse(split="a=0.5,b=0.3,c=0.2").assign(hashes)
    after = parse(split="a=0.5,b=0.4,c=0.1").assign(hashes)
    assert (after[before < 2] == before[before < 2]).all()
    assert set(after[before == 2].tolist()) == {1, 2}


def test_splits_have_one_spelling() -> None:
    assert parse(split=" a = .5, b=rest").spell() == "a=0.5,b=0.5"
    names = parse(split="train, test", split_by="set")
    assert (names.spell(), names.shares, names.bounds) == ("train,test", None, None)
    assert parse(split="a=0.5,b=0.5", split_seed=7, split_by="site") == Splits(
        ("a", "b"), (Fraction(1, 2),) * 2, 7, "site"
    )
    assert parse_splits(PackOptions()) is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "träin=0.5,b=0.5",
            "name 'träin', expected only letters from a to z, digits, _ and -",
            EXAMPLE,
        ),
        ("a=1", "found 1 split, expected 2 to 1,000", EXAMPLE),
        (
            "train,test",
            "found names without shares, expected NAME=SHARE",
            f"{EXAMPLE}, or pass --split-by COLUMN to take the values of a column",
        ),
        (
            "a=0.5,b",
            "found 'b', expected NAME=NUMBER, with commas between them",
            "write it like a=0.9,b=0.1",
        ),
    ],
)
def test_splits_that_cannot_be_used_are_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(split=text)
    assert raised.value.message == f"--split {text!r}: {message}"
    assert raised.value.hint == hint
