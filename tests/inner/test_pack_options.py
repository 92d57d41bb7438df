"""The options of pack: the exact text of every error, and the defaults that are chosen."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest
from seqpack_cli.batching.option_checks import MAX_NUM_BUCKETS

from seqpack_cli.batching.options import COUNTS, PackOptions
from seqpack_cli.errors import OptionError

LENGTHS_OR_PAIRS = "expected 'auto' or lengths, such as [32, 64], or for pairs [(10, 15), (20, 25)]"
NONSENSE: list[tuple[dict[str, Any], str]] = [
    (
        {"layout": "flat"},
        "layout is 'flat', expected 'packed' or 'padded' or 'varlen' or 'streams'",
    ),
    ({"order": "random"}, "order is 'random', expected 'length' or 'none'"),
    ({"fill": "first"}, "fill is 'first', expected None or 'best-fit' or 'sequential' or 'chunk'"),
    ({"overflow": "cut"}, "overflow is 'cut', expected None or 'error' or 'drop' or 'split'"),
    ({"last_batch": "fill"}, "last_batch is 'fill', expected 'keep' or 'drop' or 'pad'"),
    ({"padding_side": "both"}, "padding_side is 'both', expected 'right' or 'left'"),
    ({"seed": -1}, "seed is -1, expected at least 0"),
    ({"split_seed": -1}, "split_seed is -1, expected at least 0"),
    ({"buckets": ()}, f"buckets is (), {LENGTHS_OR_PAIRS}"),
    ({"buckets": (8, 0)}, f"buckets is (8, 0), {LENGTHS_OR_PAIRS}"),
    ({"buckets": "most"}, f"buckets is 'most', {LENGTHS_OR_PAIRS}"),
    *(({name: 0}, f"{name} is 0, expected at least 1") for name in COUNTS),
]

VARLEN = {"layout": "varlen", "max_tokens": 8}
SHARED = "conflicts with --layout varlen, whose rows several sequences share"
STREAMS = {"layout": "streams", "max_tokens": 8}
CUT = (
    "conflicts with --layout streams: streams are cut every --max-tokens steps, and only the last "
    "batch is padded"
)
NO_SHUFFLE = "has no effect without --shuffle, --passes or --share"
NO_SEED = "pass --shuffle, or leave out --seed"

# Options, what is wrong with them, and the hint.
CONTRADICTIONS: list[tuple[dict[str, Any], str, str | None]] = [
    (
        {"layout": "varlen"},
        "--layout varlen needs --max-tokens",
        "pass the length of a row, for example --max-tokens 2048",
    ),
    ({**VARLEN, "window": 4}, f"--window {SHARED}", "leave out --window"),
    ({**VARLEN, "buckets": (8,)}, f"--buckets {SHARED}", "leave out --buckets"),
    ({**VARLEN, "num_buckets": 4}, f"--num-buckets {SHARED}", "leave out --num-buckets"),
    (
        {**VARLEN, "last_batch": "drop"},
        f"--last-batch drop {SHARED}",
        "leave out --last-batch drop",
    ),
    (
        {**VARLEN, "last_batch": "pad"},
        "--last-batch pad conflicts with --layout varlen without --batch-size: a batch is one row",
        "pass --batch-size, or leave out --last-batch pad",
    ),
    (
        {**VARLEN, "align_sequences": 3},
        "--max-tokens 8: not a multiple of --align-sequences 3",
        "pass --max-tokens 6",
    ),
    (
        {**VARLEN, "fill": "chunk", "align_sequences": 2},
        "--align-sequences 2 conflicts with --fill chunk, which cuts anywhere to fill every row",
        "leave out --align-sequences 2",
    ),
    (
        {**VARLEN, "fill": "chunk", "overflow": "drop"},
        "--overflow drop conflicts with --fill chunk, which cuts anywhere to fill every row",
        "leave out --overflow drop",
    ),
    (
        {"align_sequences": 2},
        "--align-sequences 2 needs --layout varlen",
        "to round the widths of --layout padded, pass --pad-to-multiple",
    ),
    (
        {**STREAMS, "max_tokens": None},
        "--layout streams needs --max-tokens",
        "pass the steps of a batch, for example --max-tokens 128",
    ),
    ({**STREAMS, "fill": "best-fit"}, f"--fill best-fit {CUT}", "leave out --fill best-fit"),
    ({**STREAMS, "overflow": "drop"}, f"--overflow drop {CUT}", "leave out --overflow drop"),
    ({**STREAMS, "last_batch": "pad"}, f"--last-batch pad {CUT}", "leave out --last-batch pad"),
    (
        {**STREAMS, "align_sequences": 2},
        f"--align-sequences 2 {CUT}",
        "leave out --align-sequences 2",
    ),
    (
        {**VARLEN, "order": "none"},
        "--order none conflicts with --fill best-fit, the default of --layout varlen",
        "pass --fill sequential to keep the order of the store",
    ),
    (
        {**VARLEN, "pad_to_multiple": 8},
        "--pad-to-multiple 8 needs --layout padded",
        "pass --layout padded, or leave out --pad-to-multiple 8",
    ),
    (
        {"last_batch": "pad"},
        "--last-batch pad needs --layout padded",
        "pass --layout padded, or leave out --last-batch pad",
    ),
    (
        {"padding_side": "left"},
        "--padding-side left needs --layout padded",
        "pass --layout padded, or leave out --padding-side left",
    ),
    (
        {"layout": "padded", "fill": "sequential"},
        "--fill sequential needs --layout varlen",
        "pass --layout varlen, or leave out --fill",
    ),
    (
        {"max_tokens": 8, "overflow": "split"},
        "--overflow split needs --layout varlen",
        "split with tokenize --max-length, or pass --overflow drop",
    ),
    (
        {"buckets": "auto", "overflow": "drop"},
        "--overflow drop needs --max-tokens or --buckets K1,K2,…",
        "drop long sequences with --drop-longer",
    ),
    (
        {"window": 4, "order": "none"},
        "--window conflicts with --order none",
        "leave out one of the two",
    ),
    (
        {"buckets": (4, 8), "num_buckets": 2},
        "--num-buckets needs --buckets auto",
        "pass --buckets auto",
    ),
    (
        {"layout": "padded", "max_tokens": 64, "batch_size": 4, "last_batch": "pad"},
        "--last-batch pad needs a fixed number of rows: --batch-size alone, or --buckets",
        "pass --batch-size instead of --max-tokens, or add --buckets",
    ),
    (
        {"layout": "padded", "max_tokens": 4, "pad_to_multiple": 8},
        "--max-tokens 4: expected at least one row of --pad-to-multiple 8",
        "pass --max-tokens 8, or more",
    ),
    (
        {"layout": "padded", "buckets": (8, 12), "pad_to_multiple": 8},
        "--buckets 12: not a multiple of --pad-to-multiple 8",
        "leave out --pad-to-multiple: the buckets set the widths",
    ),
    (
        {"layout": "padded", "buckets": (8, 2048), "max_tokens": 1024},
        "--buckets 2048: a single row exceeds --max-tokens 1,024",
        "pass --max-tokens 2048 or more, or leave out this bucket",
    ),
    (
        {"passes": "A=2", "share": "A=1"},
        "--passes conflicts with --share",
        "leave out one of the two",
    ),
    (
        {"max_passes": "2", "passes": "A=2"},
        "--max-passes needs --share",
        "pass --share, or leave out --max-passes",
    ),
    (
        {"max_passes": "0", "share": "A=1"},
        "--max-passes: found 0, expected a decimal number above 0, at most 10,000",
        "write it like 0.01",
    ),
    (
        {"split_seed": 1},
        "--split-seed needs --split",
        "pass --split, or leave out --split-seed",
    ),
    (
        {"where": ["s = a"], "store_column": "s"},
        "--where 's = a': found the column that --store-column adds, expected one of the stores",
        "to pack only some stores, leave out the others",
    ),
    ({"split_by": "set"}, "--split-by needs --split", "pass --split, or leave out --split-by"),
    (
        {"split": "train,test", "split_by": "set", "split_seed": 7},
        "--split-seed 7 has no effect: --split names values of --split-by",
        "leave out --split-seed",
    ),
    ({"seed": 5}, f"--seed 5 {NO_SHUFFLE}", NO_SEED),
    ({"seed": 5, "window": 8, "shuffle": False}, f"--seed 5 {NO_SHUFFLE}", NO_SEED),
    ({**VARLEN, "fill": "sequential", "seed": 5}, f"--seed 5 {NO_SHUFFLE}", NO_SEED),
    ({**VARLEN, "shuffle": False, "seed": 5}, f"--seed 5 {NO_SHUFFLE}", NO_SEED),
]


@pytest.mark.parametrize(("values", "message"), NONSENSE)
def test_pack_options_refuse_nonsense(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PackOptions(**values)


@pytest.mark.parametrize(("values", "message", "hint"), CONTRADICTIONS)
def test_pack_options_refuse_what_conflicts(
    values: dict[str, Any], message: str, hint: str | None
) -> None:
    options = PackOptions(**values)
    with pytest.raises(OptionError) as raised:
        options.resolve()
    assert raised.value.message == message
    assert raised.value.hint == hint


# Options, and what resolve() adds to them.
CHOICES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"batch_size": 64, "shuffle": False}),
    ({"max_tokens": 512}, {"shuffle": False}),
    ({"max_tokens": 512, "batch_size": 4, "shuffle": True}, {}),
    (
        {"layout": "padded", "buckets": "auto"},
        {"batch_size": 64, "num_buckets": 8, "shuffle": False},
    ),
    ({"buckets": "auto", "num_buckets": 3}, {"batch_size": 64, "shuffle": False}),
    (
        {"layout": "padded", "buckets": (16, 8), "max_tokens": 64, "last_batch": "pad"},
        {"buckets": (8, 16), "shuffle": False},
    ),
    (VARLEN, {"fill": "best-fit", "shuffle": True, "overflow": "split"}),
    (
        {**VARLEN, "shuffle": False, "overflow": "error"},
        {"fill": "best-fit", "shuffle": False, "seed": 0},
    ),
    (
        {**VARLEN, "fill": "sequential"},
        {"order": "none", "shuffle": False, "seed": 0, "overflow": "split"},
    ),
    (
        {**STREAMS, "seed": 5, "shuffle": True},
        {"fill": "chunk", "order": "none", "batch_size": 64, "overflow": "split"},
    ),
    (
        {**VARLEN, "batch_size": 4, "align_sequences": 4, "last_batch": "pad"},
        {"fill": "best-fit", "shuffle": True, "overflow": "split"},
    ),
    ({**VARLEN, "seed": 5}, {"fill": "best-fit", "shuffle": True, "overflow": "split"}),
    ({**VARLEN, "fill": "sequential", "shuffle": True, "overflow": "drop"}, {"order": "none"}),
    (
        {"split": "a = .5, b=rest", "split_name": "b", "split_seed": 2},
        {"split": "a=0.5,b=0.5", "batch_size": 64, "shuffle": False},
    ),
    (
        {"split": "a, b", "split_by": "set"},
        {"split": "a,b", "batch_size": 64, "shuffle": False},
    ),
    (
        {"passes": "A=2.0, B=5e-1", "seed": 5},
        {"passes": "A=2,B=0.5", "batch_size": 64, "shuffle": False},
    ),
    (
        {"share": "A=.70,B=rest", "seed": 5},
        {"share": "A=0.7,B=0.3", "max_passes": "1", "batch_size": 64, "shuffle": False},
    ),
    (
        {"share": "A=1", "max_passes": "2.50"},
        {"max_passes": "2.5", "batch_size": 64, "shuffle": False},
    ),
]


@pytest.mark.parametrize(("given", "chosen"), CHOICES)
def test_resolve_sets_only_what_was_not_given(
    given: dict[str, Any], chosen: dict[str, Any]
) -> None:
    resolved = PackOptions(**given).resolve()
    assert asdict(resolved) == {**asdict(PackOptions()), **given, **chosen}
    assert resolved.resolve() == resolved


def test_bucket_keys_are_sorted_and_each_held_once() -> None:
    assert PackOptions(buckets=(32, 8, 16, 8)).buckets == (8, 16, 32)


def test_left_out_columns_are_sorted_and_each_held_once() -> None:
    assert PackOptions(drop_column=["b", "a", "b"]).drop_column == ("a", "b")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (None, "split_name is 'c', expected None without split"),
        ("a=0.5,b=0.5", "split_name is 'c', expected 'a' or 'b'"),
    ],
)
def test_a_split_that_is_not_named_is_refused(split: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        PackOptions(split=split, split_name="c").resolve()


def test_only_the_first_split_has_passes() -> None:
    for values, expected in (
        ({"passes": "A=2"}, True),
        ({"share": "A=1"}, True),
        ({}, False),
        ({"split": "a=0.5,b=0.5", "split_name": "a"}, False),
        ({"split": "a=0.5,b=0.5", "split_name": "a", "passes": "A=2"}, True),
        ({"split": "a=0.5,b=0.5", "split_name": "b", "passes": "A=2"}, False),
    ):
        assert PackOptions(**values).has_passes is expected, values


def test_largest_bucket_may_be_the_whole_budget() -> None:
    options = PackOptions(layout="padded", buckets=(8, 16), pad_to_multiple=8, max_tokens=16)
    assert options.resolve().buckets == (8, 16)
    packed = PackOptions(buckets=(64,), max_tokens=16)  # real tokens: a key is no cost
    assert packed.resolve().buckets == (64,)


def test_more_buckets_than_can_be_chosen_in_memory_are_refused() -> None:
    assert PackOptions(buckets="auto", num_buckets=MAX_NUM_BUCKETS).resolve().num_buckets == 1024
    with pytest.raises(OptionError, match=r"^--num-buckets 1025: expected at most 1,024$"):
        PackOptions(buckets="auto", num_buckets=MAX_NUM_BUCKETS + 1).resolve()


@pytest.mark.parametrize("shard_bytes", [2**50 + 1, 10**30])
def test_shards_larger_than_any_disk_are_refused(shard_bytes: int) -> None:
    with pytest.raises(
        ValueError, match=r"^shard_bytes is \d+, expected at most 1125899906842624$"
    ):
        PackOptions(shard_bytes=shard_bytes)
