"""The batches of pairs are those of a slow reference, and hold every pair of the input once."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import xxhash
from batching_reference import slow_rounds, slow_visits
from here import HERE
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from make_golden import read_batches
from pair_corpus import make_pair_stores
from pair_reference import (
    DoesNotFitError,
    Pair,
    PairPlan,
    count_left_out,
    list_rows,
    slow_pair_plan,
)

from seqpack_cli.batching.pack_options import PackOptions
from seqpack_cli.errors import DataError, OptionError
from seqpack_cli.shards.pack_run import pack

BOS, EOS, PAD = 257, 258, 256
SHARD_BYTES = 4000
NUM_DOCUMENTS = 30


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    """Return pairs of texts, of which some have an empty side and some are equal."""
    draw = random.Random(7)

    def draw_text() -> str:
        return "".join(draw.choices("abcdefg", k=draw.choice([0, 1, 2, 3, 5, 5, 8, 12])))

    return [
        {"read": draw_text(), "written": draw_text(), "lang": draw.choice("de"), "number": number}
        for number in range(NUM_DOCUMENTS)
    ]


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    return make_pair_stores(folder, records, bos="<bos>", eos="<eos>")


@pytest.fixture(scope="module")
def pairs(records: list[dict[str, Any]]) -> list[Pair]:
    """Return the ids that both stores must hold, from the texts alone."""
    written = [list(record["written"].encode()) for record in records]
    decoder = [[BOS, *ids, EOS] if ids else [] for ids in written]
    return [
        (list(record["read"].encode()), ids) for record, ids in zip(records, decoder, strict=True)
    ]


LENGTHS = st.integers(2, 14)
KEYS = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=4)


@st.composite
def pack_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw options of pack for pairs that do not conflict."""
    layout = draw(st.sampled_from(["packed", "padded"]))
    buckets = draw(st.none() | st.just("auto") | KEYS)
    values: dict[str, Any] = {
        "layout": layout,
        "order": draw(st.sampled_from(["length", "none"])),
        "shuffle": draw(st.booleans()),
        "buckets": buckets,
        "shard_bytes": draw(st.sampled_from([SHARD_BYTES, 64 << 20])),
    }
    limits = draw(st.sampled_from(["rows", "tokens", "both"]))
    if limits != "tokens":
        values["batch_size"] = draw(st.integers(1, 6))
    if limits != "rows":
        values["max_tokens"] = draw(st.integers(14, 90))
        values["count"] = draw(st.sampled_from(["max", "sum"]))
    if values["shuffle"]:
        values["seed"] = draw(st.integers(0, 3))
    if values["order"] == "length":
        values["window"] = draw(st.none() | st.integers(1, 9))
    if buckets == "auto":
        values["num_buckets"] = draw(st.integers(1, 6))
    if limits != "rows" or isinstance(buckets, list):
        values["overflow"] = draw(st.sampled_from([None, "error", "drop", "drop"]))
    last_batches = ["keep", "drop"]
    if layout == "padded":
        values["padding_side"] = draw(st.sampled_from(["left", "right"]))
        if not isinstance(buckets, list):
            values["pad_to_multiple"] = draw(st.integers(1, 4))
        if limits == "rows" or buckets is not None:
            last_batches.append("pad")
    values["last_batch"] = draw(st.sampled_from(last_batches))
    values["drop_shorter"] = draw(st.none() | st.integers(1, 4))
    values["drop_longer"] = draw(st.none() | st.integers(8, 13))
    return values


@settings(max_examples=60, deadline=None)
@given(
    values=pack_options(),
    where=st.sampled_from([None, "number < 20", "decoder.number < 20", "decoder.@length != 5"]),
    passes=st.sampled_from([None, None, "0.5", "2", "2.5"]),
)
def test_pairs_are_batched_as_by_the_slow_reference(
    stores: tuple[Path, Path],
    pairs: list[Pair],
    records: list[dict[str, Any]],
    values: dict[str, Any],
    where: str | None,
    passes: str | None,
) -> None:
    if where is not None:
        values["where"] = [where]
    if passes is not None:
        values["passes"] = f"read={passes}"
    options = PackOptions(**values)
    try:
        resolved = options.resolve(pairs=True)
    except OptionError as error:
        assume("exceeds" not in error.message)  # a bucket for which there is no room
        raise
    is_selected = [
        where is None or (len(pair[1]) != 5 if "@" in where else record["number"] < 20)
        for pair, record in zip(pairs, records, strict=True)
    ]
    rounds_of = [
        _find_rounds(record["read"], Fraction(passes or 1), resolved.seed) for record in records
    ]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "shards")
        try:
            plan = slow_pair_plan(pairs, resolved, is_selected, rounds_of)
        except DoesNotFitError:
            event("does not fit")
            with pytest.raises(OptionError, match=r"bucket|--max-tokens"):
                pack(stores[0], output, options, decoder=stores[1], executor=HERE)
            return
        if not plan.batches:
            event("no batch is left")
            with pytest.raises(DataError, match="no batch is left"):
                pack(stores[0], output, options, decoder=stores[1], executor=HERE)
            return
        manifest, _ = pack(stores[0], output, options, decoder=stores[1], executor=HERE)
        found = [read_batches(output, prefix) for prefix in ("", "decoder.")]
        for entry in manifest["shards"]:
            assert entry["bytes"] <= options.shard_bytes or entry["num_batches"] == 1
    expected = list(zip(*list_rows(plan, pairs, resolved, PAD), strict=True))
    assert found == [list(side) for side in expected]
    assert manifest["bucket_keys"] == plan.keys
    for side, ledger in enumerate((manifest["ledger"], manifest["decoder"]["ledger"])):
        _check_ledger(ledger, plan, pairs, rounds_of, side)


def _find_rounds(text: str, passes: Fraction, seed: int) -> set[int]:
    """Return the rounds in which a document is visited."""
    hashed = xxhash.xxh3_64_intdigest(text.encode())
    visits = slow_visits(hashed, passes, seed)
    return slow_rounds(hashed, visits, -(-passes.numerator // passes.denominator), seed)


def _check_ledger(
    ledger: dict[str, Any],
    plan: PairPlan,
    pairs: list[Pair],
    rounds_of: list[set[int]],
    side: int,
) -> None:
    """Check what is counted on a side: what is packed, and why the rest is not."""
    lengths = [len(pair[side]) for pair in pairs]
    packed = [lengths[document] for batch in plan.batches for document in batch.documents]
    assert (ledger["num_sequences"], ledger["num_tokens"]) == (len(packed), sum(packed))
    expected = count_left_out(plan, pairs, side)
    for place, name in enumerate(("num_dropped_sequences", "num_dropped_tokens")):
        found = {reason: number for reason, number in ledger[name].items() if number}
        assert found == {reason: counts[place] for reason, counts in expected.items()}
    left_out = {document for document, reason in plan.left_out if reason != "last_batch"}
    visited = [
        (lengths[document], len(rounds) - 1)
        for document, rounds in enumerate(rounds_of)
        if rounds and document not in left_out
    ]
    assert ledger["num_repeated_sequences"] == sum(visits for _, visits in visited)
    assert ledger["num_repeated_tokens"] == sum(length * visits for length, visits in visited)


def test_bucket_for_which_the_budget_has_no_room_is_refused(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    """A chosen key may join two kinds of pairs whose long sides differ."""
    options = PackOptions("padded", buckets="auto", num_buckets=1, max_tokens=20, count="sum")
    with pytest.raises(OptionError) as caught:
        pack(
            stores[0],
            tmp_path / "shards",
            replace(options, overflow="drop"),
            decoder=stores[1],
            executor=HERE,
        )
    assert caught.value.message == (
        "--buckets auto: a single row of the bucket (12,14) exceeds --max-tokens 20"
    )
    assert caught.value.hint == "pass --max-tokens 26 or more, or the lengths of all buckets"
    assert not (tmp_path / "shards").exists()
