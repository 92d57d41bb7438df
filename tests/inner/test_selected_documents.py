"""Splits, conditions and passes of several stores, compared with a slow loop over the sequences."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batching_reference import slow_rounds, slow_split, slow_visits
from here import HERE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqpack_cli import PackOptions, TokenizeOptions, tokenize
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.selection import select
from seqpack_cli.errors import OptionError
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.tokens.store import TokenStore, open_stores

SHARES = [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]
NAMES = ("train", "validation", "test")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Return three stores as one: equal documents, cut ones, and ones without a sequence."""
    folder = tmp_path_factory.mktemp("selected")
    options = TokenizeOptions(keep=["year:int"], max_length=12, part_bytes=600)
    for name, size in (("a", 40), ("b", 15), ("c", 25)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for number in range(size):
                text = (
                    ""
                    if number % 9 == 4
                    else f"{name if number % 3 else ''}{number} " * (number % 5)
                )
                file.write(json.dumps({"text": text, "year": number % 4}) + "\n")
        tokenize([str(folder / f"{name}.jsonl")], folder / name, options, executor=HERE)
    return open_stores([folder / name for name in "abc"])


def list_sequences(stores: TokenStore) -> list[tuple[int, int, int, int]]:
    """Return store, length, document hash and year of each sequence."""
    found = []
    for number in range(stores.num_parts):
        hashes = np.repeat(stores.part_hashes(number), stores.count_sequences(number))
        years = np.asarray(stores.part_column(number, "year"))
        place = stores.folder_of(number).number
        lengths = stores.part_lengths(number).tolist()
        found += [
            (place, *each) for each in zip(lengths, hashes.tolist(), years.tolist(), strict=True)
        ]
    return found


@st.composite
def draw_options(draw: st.DrawFn) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if draw(st.booleans()):
        values["split"] = "train=0.6,validation=0.3,test=rest"
        values["split_name"] = draw(st.sampled_from(NAMES))
        values["split_seed"] = draw(st.integers(0, 5))
    if draw(st.booleans()):
        values["where"] = draw(st.lists(st.sampled_from(["year != 1", "year < 3"]), min_size=1))
    if draw(st.booleans()):
        passes = draw(
            st.lists(st.sampled_from(["", "0.5", "1", "2", "2.5"]), min_size=3, max_size=3)
        )
        named = [f"{place}={each}" for place, each in enumerate(passes, 1) if each]
        values["passes"] = ",".join(named) or "1=1"
        values["seed"] = draw(st.integers(0, 5))
    if draw(st.booleans()):
        values["drop_shorter"] = draw(st.integers(1, 6))
    if draw(st.booleans()):
        values["drop_longer"] = draw(st.integers(6, 12))
    return values


def explain(values: dict[str, Any], sequence: tuple[int, int, int, int]) -> tuple[str | None, int]:
    """Return why a sequence is left out, None if it is not, and how often it is visited."""
    place, length, document_hash, year = sequence
    name = values.get("split_name")
    if name and NAMES[slow_split(document_hash, SHARES, values["split_seed"])] != name:
        return "other_splits", 0
    if length < values.get("drop_shorter", 0):
        return "drop_shorter", 1
    if length > values.get("drop_longer", 99):
        return "drop_longer", 1
    for condition in values.get("where", ()):
        if not (year != 1 if condition == "year != 1" else year < 3):
            return "where", 0
    passes = dict(each.split("=") for each in values.get("passes", "1=1").split(","))
    if name not in (None, "train"):
        return None, 1
    number = Fraction(passes.get(str(place + 1), "1"))
    visits = slow_visits(document_hash, number, values.get("seed", 0))
    return None if visits else "passes", visits


def count(lengths: list[int]) -> dict[int, int]:
    return dict(Counter(lengths))


def read_counts(counts: LengthCounts) -> dict[int, int]:
    both = zip(counts.lengths.tolist(), counts.counts.tolist(), strict=True)
    return {length: number for length, number in both if number}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=draw_options())
def test_what_is_selected_agrees_with_a_slow_loop(
    stores: TokenStore, values: dict[str, Any]
) -> None:
    options = PackOptions(**values).resolve()
    source, sequences = SelectedStore(stores, options), list_sequences(stores)
    explained = [explain(values, sequence) for sequence in sequences]
    counts = source.count()
    halves = [source.count(0, 3), source.count(3)]
    assert read_counts(type(counts).join(halves).kept) == read_counts(counts.kept)
    selection = select(source, counts, options)
    dropped = dict.fromkeys(selection.num_dropped_sequences, 0)
    dropped |= Counter(reason for reason, _ in explained if reason)
    assert selection.num_dropped_sequences == dropped
    # in the order of precedence
    order = ("other_splits", "drop_shorter", "drop_longer", "where", "passes")
    assert [*dropped] == [reason for reason in order if reason in dropped]
    kept = [
        length
        for (_, length, *_), (reason, visits) in zip(sequences, explained, strict=True)
        for _ in range(visits)
        if not reason
    ]
    assert read_counts(selection.kept) == count(kept)
    again = [
        length
        for (_, length, *_), (_, visits) in zip(sequences, explained, strict=True)
        for _ in range(visits - 1)
    ]
    repeated = counts.repeated
    assert (read_counts(repeated) if repeated else {}) == count(again)
    check_rounds(source, sequences, explained)


def check_rounds(
    source: SelectedStore, sequences: list[Any], explained: list[tuple[str | None, int]]
) -> None:
    """Compare the lengths of each round, but of those that are dropped for their length."""
    num_rounds = len(source.rounds)
    assert num_rounds == max(1, *(math.ceil(passes) for passes in source.passes))
    found = [each.lengths.tolist() for each in source.rounds]
    for index, (_, length, document_hash, _) in enumerate(sequences):
        reason, visits = explained[index]
        if reason in ("drop_shorter", "drop_longer"):
            assert sum(lengths[index] > 0 for lengths in found) <= 1  # 0 with another reason
            continue
        rounds = slow_rounds(document_hash, visits, num_rounds, source.options.seed)
        expected = [length if number in rounds else 0 for number in range(num_rounds)]
        assert [lengths[index] for lengths in found] == expected


def test_shares_follow_from_what_is_left_of_each_store(stores: TokenStore) -> None:
    values = {
        "where": ["year != 1"],
        "drop_longer": 11,
        "split": "train=0.6,validation=0.3,test=rest",
    }
    options = PackOptions(**values, share="1=0.5,2=0.2,3=rest", split_name="train").resolve()
    source = SelectedStore(stores, options)
    tokens = [0, 0, 0]
    slow = {**values, "split_name": "train", "split_seed": 0}
    for sequence in list_sequences(stores):
        if explain(slow, sequence)[0] is None:
            tokens[sequence[0]] += sequence[1]
    shares = [Fraction(1, 2), Fraction(1, 5), Fraction(3, 10)]
    factor = min(Fraction(total) / share for total, share in zip(tokens, shares, strict=True))
    assert source.passes == tuple(
        Fraction(math.floor(factor * share / total * 10**12), 10**12)
        for total, share in zip(tokens, shares, strict=True)
    )
    others = PackOptions(**values, share="1=0.5,2=0.2,3=rest", split_name="test").resolve()
    assert SelectedStore(stores, others).passes == (1, 1, 1)


def test_a_store_without_a_token_for_its_share_is_named(stores: TokenStore) -> None:
    path = stores.folders[1].path
    options = PackOptions(
        where=[f"@source != *{Path(str(path)).name}.jsonl"], share="1=0.5,2=0.2,3=rest"
    )
    with pytest.raises(OptionError) as caught:
        SelectedStore(stores, options.resolve())
    assert caught.value.message == f"--share: {path} has no token left for its share of 0.2"
