"""Uniform numbers from document hashes, by purpose and seed."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from batching_reference import slow_mix
from hypothesis import given
from hypothesis import strategies as st

from seqpack_cli.batching.selection import mix, to_bound
from seqpack_cli.errors import MAX_SEED
from seqpack_cli.limits import LIMITS

PURPOSES = SPLIT, PASSES, ROUNDS = ("split", "passes", "rounds")
HASHES = st.integers(0, 2**64 - 1)
NUM = 1 << 16


@pytest.mark.parametrize(
    ("purpose", "seed", "expected"),
    [
        ("split", 0, [0x2E2BAE1DD8C329E6, 0x8180F772B3FF5799, 0xD64E746C30D87C86]),
        ("passes", 0, [0xC2C9521D67F8A2C1, 0xDCE61A25E18065E7, 0x80E9A3089CEE0A6B]),
        ("rounds", 0, [0xA5178C1D8CC4F396, 0x1F30C675EF75018B, 0xC129EE8B73C55B3A]),
        ("split", 7, [0x46037EC0ADA224CF, 0x2F41A2E946E49C62, 0xEDEC5BD6CD1F6461]),
        ("passes", MAX_SEED, [0xD90550A0A45EC0BC, 0xB233E1BE4DA4268A, 0x527E5B96823D9052]),
    ],
)
def test_mixed_hashes_stay_as_they_are(purpose: str, seed: int, expected: list[int]) -> None:
    hashes = np.array([0, 1, 2**64 - 1], np.uint64)
    assert mix(hashes, seed, purpose).tolist() == expected
    assert hashes.tolist() == [0, 1, 2**64 - 1]


@given(st.lists(HASHES, max_size=9), st.integers(0, MAX_SEED), st.sampled_from(PURPOSES))
def test_mix_agrees_with_the_slow_one(hashes: list[int], seed: int, purpose: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "entries_in_cache", 4)
        mixed = mix(np.array(hashes, np.uint64), seed, purpose)
    assert mixed.dtype == np.uint64
    assert mixed.tolist() == [slow_mix(each, seed, purpose) for each in hashes]


@pytest.mark.parametrize("hashes", [np.arange(NUM), np.arange(NUM) << 48], ids=["low", "high"])
def test_mixed_hashes_are_uniform_and_independent(hashes: np.ndarray) -> None:
    """Even of hashes that differ in few bits; a chi-square of 255 has a deviation of 23."""
    sorts = [(SPLIT, 0), (PASSES, 0), (ROUNDS, 0), (SPLIT, 1), (PASSES, 2**63)]
    mixed = [mix(hashes.astype(np.uint64), seed, purpose) for purpose, seed in sorts]
    for number in mixed:
        for shift in (56, 28, 0):
            counts = np.bincount((number >> np.uint64(shift)).astype(np.uint8), minlength=256)
            assert 150 < ((counts - NUM / 256) ** 2).sum() / (NUM / 256) < 370
    for one, other in combinations(mixed, 2):
        pairs = (one >> np.uint64(60)) * np.uint64(16) + (other >> np.uint64(60))
        counts = np.bincount(pairs.astype(np.int64), minlength=256)
        assert 150 < ((counts - NUM / 256) ** 2).sum() / (NUM / 256) < 370


def test_a_bound_is_the_floor_of_its_share() -> None:
    assert to_bound(Fraction(1)) == 2**64
    assert to_bound(Fraction(1, 3)) == 0x5555555555555555
    assert to_bound(Fraction("0.1")) == 2**64 // 10
    assert to_bound(Fraction(1, 10**18)) == 18
