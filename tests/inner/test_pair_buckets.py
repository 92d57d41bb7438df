"""Buckets for pairs: keys that hold every pair with little padding, and the key of each pair."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli.batching import pair_buckets
from seqpack_cli.batching.buckets import choose_buckets
from seqpack_cli.batching.length_counts import count_lengths
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.pair_batches import choose_pair_keys
from seqpack_cli.batching.pair_buckets import choose_pair_buckets, find_pair_buckets

Key = tuple[int, int]
LENGTHS = st.integers(1, 6) | st.integers(2**31 - 3, 2**31 - 1)
PAIRS = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=30)
KEYS = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, unique=True).map(sorted)


def split(pairs: list[Key]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of both sides, as stores hold them."""
    encoder, decoder = np.array(pairs, np.int32).reshape(-1, 2).T
    return encoder, decoder


def choose(pairs: list[Key], num_buckets: int, multiple: int = 1) -> list[Key]:
    """Choose keys for a list of pairs."""
    return choose_pair_buckets(*split(pairs), num_buckets, multiple=multiple)


def slow_bucket(pair: Key, keys: list[Key]) -> int:
    """Try one key after the other."""
    fitting = [key for key in keys if pair[0] <= key[0] and pair[1] <= key[1]]
    return keys.index(min(fitting, key=sum)) if fitting else len(keys)


def slow_cells(pairs: list[Key], keys: list[Key]) -> int:
    """Add up the cells of the pairs, each in the bucket that holds it with the fewest."""
    return sum(sum(keys[slow_bucket(pair, keys)]) for pair in pairs)


def slow_fewest_cells(pairs: list[Key], num_buckets: int) -> int:
    """Try all sets of keys."""
    corners = list(product(*(sorted(set(side)) for side in zip(*pairs, strict=True))))
    longest = corners[-1]
    others = (
        keys
        for number in range(min(num_buckets, len(corners)))
        for keys in combinations(corners[:-1], number)
    )
    covering = ([*keys, longest] for keys in others)
    return min(slow_cells(pairs, keys) for keys in covering)


def random_pairs(seed: int, num_pairs: int, longest: int = 200) -> list[Key]:
    """Draw pairs whose sides are about equally long."""
    generator = np.random.default_rng(seed)
    encoder = np.clip(generator.gamma(3, 9, num_pairs), 1, longest).astype(int)
    decoder = np.clip(encoder * generator.normal(1, 0.2, num_pairs), 1, longest).astype(int)
    return list(zip(encoder.tolist(), decoder.tolist(), strict=True))


@settings(max_examples=100)
@given(PAIRS, st.integers(1, 9), st.sampled_from([1, 3, 8]))
def test_choose_pair_buckets_holds_every_pair(
    pairs: list[Key], num_buckets: int, multiple: int
) -> None:
    keys = choose(pairs, num_buckets, multiple)
    assert keys == sorted(set(keys))
    assert len(keys) <= num_buckets
    assert all(side % multiple == 0 for key in keys for side in key)
    assert {slow_bucket(pair, keys) for pair in pairs} == set(range(len(keys)))


@settings(max_examples=60)
@given(PAIRS)
def test_choose_pair_buckets_is_exact_for_one_key_for_all_and_for_one_less(
    pairs: list[Key],
) -> None:
    encoder, decoder = zip(*pairs, strict=True)
    assert choose(pairs, 1) == [(max(encoder), max(decoder))]
    kinds = sorted(set(pairs))
    assert choose(pairs, len(kinds)) == kinds
    if len(kinds) > 1:
        joined = (
            sorted({*kinds} - {one, other} | {(max(one[0], other[0]), max(one[1], other[1]))})
            for one, other in combinations(kinds, 2)
        )
        fewest = min(slow_cells(pairs, keys) for keys in joined)
        assert slow_cells(pairs, choose(pairs, len(kinds) - 1)) == fewest


def test_choose_pair_buckets_comes_near_the_fewest_cells() -> None:
    found, fewest = 0, 0
    for seed in range(12):
        pairs = random_pairs(seed, 12, longest=5 + seed % 3)
        found += slow_cells(pairs, choose(pairs, 3))
        least = slow_fewest_cells(pairs, 3)
        assert least <= slow_cells(pairs, choose(pairs, 3))
        fewest += least
    assert found <= 1.02 * fewest


@pytest.mark.parametrize("num_buckets", [4, 16, 64])
def test_choose_pair_buckets_beats_buckets_chosen_for_each_side(num_buckets: int) -> None:
    pairs = random_pairs(0, 3_000)
    encoder, decoder = split(pairs)
    counts = [count_lengths([side]) for side in (encoder, decoder)]
    nested = [
        list(product(choose_buckets(counts[0], rows), choose_buckets(counts[1], columns)))
        for rows, columns in product(range(1, num_buckets + 1), repeat=2)
        if rows * columns == num_buckets
    ]
    cells = [
        int(np.array(keys).sum(1)[find_pair_buckets(encoder, decoder, keys)].sum())
        for keys in (*nested, choose(pairs, num_buckets))
    ]
    assert cells[-1] < min(cells[:-1])


def test_choose_pair_buckets_joins_many_kinds_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_buckets, "MIN_KINDS", 700)
    encoder, decoder = np.random.default_rng(0).integers(1, 4_000, (2, 40_000), np.int32)
    keys = choose_pair_buckets(encoder, decoder, 64, multiple=8)
    found = find_pair_buckets(encoder, decoder, keys)
    assert set(found.tolist()) == set(range(len(keys)))
    assert len({key[0] for key in keys}) <= 26  # 26 x 26 kinds are at most 700
    # 8 x 8 buckets of equal size waste an eighth of what they hold
    assert np.array(keys).sum(1)[found].sum() < 9 / 8 * (encoder.sum() + decoder.sum())


def test_choose_pair_buckets_does_not_depend_on_the_order_of_pairs() -> None:
    pairs = random_pairs(1, 500)
    assert choose(pairs, 7) == choose(pairs[::-1], 7) == choose(pairs * 2, 7)


def test_choose_pair_buckets_of_no_pairs() -> None:
    assert choose([], 4) == []
    assert find_pair_buckets(*split([]), []).tolist() == []


@pytest.mark.parametrize(
    ("options", "num_keys"),
    [
        (PackOptions(batch_size=10), 12),
        (PackOptions(max_tokens=71), 12),  # 600 pairs have 4,290 tokens on the larger side
        (PackOptions(max_tokens=110, count="sum"), 12),  # and 6,600 on both
        (PackOptions(max_tokens=71, num_buckets=9), 9),
        (PackOptions(batch_size=100), 8),
    ],
)
def test_choose_pair_keys_chooses_one_for_every_five_batches(
    options: PackOptions, num_keys: int
) -> None:
    encoder, decoder = np.indices((10, 10), np.int32).reshape(2, -1).repeat(6, axis=1) + 1
    options = replace(options, layout="padded", buckets="auto").resolve(pairs=True)
    keys = choose_pair_keys(encoder, decoder, options)
    assert keys is not None
    assert len(keys) == num_keys


def test_choose_pair_buckets_refuses_no_bucket_and_no_multiple() -> None:
    with pytest.raises(ValueError, match=r"^num_buckets is 0, expected at least 1$"):
        choose([(1, 1)], 0)
    with pytest.raises(ValueError, match=r"^multiple is 0, expected at least 1$"):
        choose([(1, 1)], 1, multiple=0)


@settings(max_examples=100)
@given(st.lists(st.tuples(LENGTHS, LENGTHS)), KEYS)
def test_find_pair_buckets_agrees_with_trying_each_key(pairs: list[Key], keys: list[Key]) -> None:
    numbers = find_pair_buckets(*split(pairs), keys)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [slow_bucket(pair, keys) for pair in pairs]


def test_find_pair_buckets_takes_the_first_of_equals() -> None:
    assert find_pair_buckets(*split([(2, 2), (3, 2)]), [(2, 6), (4, 4), (5, 3)]).tolist() == [0, 1]
