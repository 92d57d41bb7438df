"""Shards beside the plan of their store: none of ours differs, and every change to one is found."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import run
from forgeries import FORGERIES, put_together, take_apart
from here import HERE
from shard_reference import (
    change_manifest,
    make_shards,
    plan_by_another_version,
    read_manifest_json,
)
from test_verify_campaign import draw_lengths, draw_pack_options

from seqpack_cli.batching.options import PLAN_VERSION, PackOptions
from seqpack_cli.errors import DataError, FolderError, OptionError, SeqpackError
from seqpack_cli.shards.pack import pack
from seqpack_cli.shards.selection import Selection
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.integers import plan_comparison
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

# Short and long ones, most lengths several times.
LENGTHS = [1 + number * number % 13 for number in range(40)] + [30, 1, 2, 25, 25]
PADDED = {"layout": "padded"}
VARLEN = {"layout": "varlen", "batch_size": None, "max_tokens": 32}
KINDS: dict[str, dict[str, Any]] = {
    "packed": {},
    "packed, shuffled": {"shuffle": True, "seed": 3},
    "packed, windows": {"window": 8, "drop_shorter": 2, "drop_longer": 12},
    "packed, no order": {"order": "none", "last_batch": "drop", "batch_size": 4},
    "packed, tokens": {"batch_size": None, "max_tokens": 40, "shuffle": True, "window": 16},
    "padded": {**PADDED, "pad_to_multiple": 4},
    "padded, cells": {**PADDED, "batch_size": None, "max_tokens": 60, "padding_side": "left"},
    "padded, buckets": {**PADDED, "buckets": (6, 12), "overflow": "drop"},
    "padded, filler": {**PADDED, "buckets": "auto", "num_buckets": 3, "last_batch": "pad"},
    "padded, all filler": {**PADDED, "batch_size": 4, "last_batch": "pad", "shuffle": True},
    "packed, passes": {"passes": "store=2.5", "shuffle": True, "seed": 4},
    "packed, share": {"share": "store=1", "max_passes": "2.5"},
    "varlen": {**VARLEN, "seed": 2},
    "varlen, in order": {**VARLEN, "fill": "sequential"},
    "varlen, pieces": {**VARLEN, "max_tokens": 11, "drop_shorter": 2},
    "varlen, pieces, passes": {**VARLEN, "max_tokens": 11, "passes": "store=2"},
}

QUICK = ("packed, windows", "padded, filler", "varlen, pieces")
SLOW = pytest.mark.slow


def verify(path: Path, **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(level="structure", **options))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make shards of every kind, of several batches each, most of several shards."""
    folder = tmp_path_factory.mktemp("good")
    return {
        name: make_shards(folder / str(number), LENGTHS, shard_bytes=800, **options)
        for number, (name, options) in enumerate(KINDS.items())
    }


def copy_of(path: Path, folder: Path) -> Path:
    """Copy a set beside its store, which stays where it is."""
    shutil.copytree(path, folder / "shards")
    store = path.parent / "store"
    change_manifest(
        folder / "shards", lambda manifest: manifest["stores"][0].update(path=str(store))
    )
    return folder / "shards"


@pytest.mark.parametrize("name", KINDS)
def test_good_shards_are_the_planned_ones(good: dict[str, Path], name: str, tmp_path: Path) -> None:
    report = verify(good[name])
    assert report.findings == []
    assert report.plan.compared
    assert report.num_batches > 2
    put_together(forgery := take_apart(copy_of(good[name], tmp_path), 0))
    assert len(forgery.shards) > 1 or name == "packed, no order"
    assert verify(forgery.path).findings == []  # a forger who changes nothing is not found


def choose_forgeries() -> list[Any]:
    """Return kind, change and seed: by default each change to a third of the kinds, once."""
    return [
        pytest.param(name, change, seed, marks=() if seed == 0 and (i + k) % 3 == 0 else SLOW)
        for i, name in enumerate(KINDS)
        for k, change in enumerate(FORGERIES)
        for seed in range(9)
    ]


@pytest.mark.parametrize(("name", "change", "seed"), choose_forgeries())
def test_one_change_with_everything_made_to_fit_is_found(
    good: dict[str, Path], tmp_path: Path, name: str, change: str, seed: int
) -> None:
    forgery = take_apart(copy_of(good[name], tmp_path), seed)
    if not FORGERIES[change](forgery):
        return
    put_together(forgery)
    assert is_refused(forgery.path)


def is_refused(path: Path) -> bool:
    """Return whether verify has a finding, or the manifest contradicts itself."""
    try:
        report = verify(path)
    except FolderError:
        return True
    assert report.plan.compared
    return bool(report.findings)


OTHER_VALUES: dict[str, list[object]] = {
    "batch_size": [1, 2, 4, 8, None],
    "max_tokens": [11, 32, 39, 41, 61, None],
    "order": ["length", "none"],
    "window": [1, 8, 9, 1000, None],
    "shuffle": [True, False],
    "seed": [0, 1, 2, 3],
    "buckets": ["auto", [6, 12], [6, 12, 30], None],
    "num_buckets": [2, 3, 8, None],
    "fill": ["best-fit", "sequential", None],
    "overflow": ["error", "drop", "split", None],
    "last_batch": ["keep", "drop", "pad"],
    "drop_shorter": [1, 2, 3, None],
    "drop_longer": [11, 12, 30, None],
    "pad_to_multiple": [1, 2, 4, 8],
    "shard_bytes": [1, 1300, 1400, 1500, 1 << 20],
}


@pytest.mark.parametrize("option", OTHER_VALUES)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=SLOW) for n in KINDS if n not in QUICK)]
)
def test_another_option_in_the_manifest_is_found_unless_it_gives_the_same(
    good: dict[str, Path], tmp_path: Path, name: str, option: str
) -> None:
    path = copy_of(good[name], tmp_path)
    manifest = read_manifest_json(path)
    for number, value in enumerate(OTHER_VALUES[option]):
        options = {**manifest["options"], option: value}
        change_manifest(path, lambda manifest, options=options: manifest.update(options=options))
        if not gives_the_same(good[name], tmp_path / str(number), manifest, options):
            assert is_refused(path), (value, manifest["options"])


def gives_the_same(
    path: Path, other: Path, manifest: dict[str, Any], options: dict[str, Any]
) -> bool:
    """Return whether pack makes the same shards with other options, but for their record."""
    apart = {name: manifest[name] for name in ("layout", "padding_side", "pad_id")}
    try:
        found, _ = pack(
            path.parent / "store", other, PackOptions(**apart, **options), executor=HERE
        )
    except (SeqpackError, ValueError, TypeError):
        return False
    return all(found[name] == manifest[name] for name in ("shards", "ledger", "bucket_keys"))


# By hand, through the command


def verify_by_command(path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    result = run("verify", path, "--level", "structure", "--json", *options)
    return result.exit_code, json.loads(result.stdout) if result.stdout else {}


def test_batch_that_the_ledger_calls_too_long_is_named(tmp_path: Path) -> None:
    forgery = take_apart(make_shards(tmp_path, LENGTHS, drop_longer=30), 0)
    forgery.drop(forgery.shards[0].pop(2).rows)
    put_together(forgery)
    code, report = verify_by_command(forgery.path)
    assert code == 1
    assert [(finding["shard"], finding["batch"]) for finding in report["findings"]] == [
        ("shard-00000.safetensors", 2),
        ("shard-00000.safetensors", None),
        ("manifest.json", None),
        ("manifest.json", None),
    ]
    num_batches = len(forgery.batches)
    assert [finding["what"] for finding in report["findings"][1:]] == [
        f"the shards end after {num_batches} batches, the plan has {num_batches + 1}",
        "num_dropped_sequences by drop_longer is 3, the plan has 0",
        "num_dropped_tokens by drop_longer is 39, the plan has 0",
    ]


REASONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no store": (
        lambda path: (path.parent / "store").rename(path.parent / "other"),
        "its token store is not at ../store",
    ),
    "another store": (
        lambda path: (path.parent / "store" / "manifest.json").write_bytes(b"{}"),
        "manifest.json: format None, expected 'seqpack.tokens'",
    ),
    "another version": (
        plan_by_another_version,
        f"the shards have plan version 2147483648, this seqpack has {PLAN_VERSION}",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_plan_that_is_not_compared_is_said_with_its_reason(tmp_path: Path, name: str) -> None:
    path = make_shards(tmp_path)
    damage, reason = REASONS[name]
    damage(path)
    code, report = verify_by_command(path)
    assert (code, report["findings"], report["plan"]["compared"]) == (0, [], False)
    assert reason in report["plan"]["why_not"]
    said = run("verify", path, "--level", "structure").stdout
    assert "  plan: not compared: " in said
    assert reason in said
    code = run("verify", path, "--level", "structure", "--tokens", tmp_path / "store").exit_code
    assert code == (0 if name == "another version" else 4)


def test_store_elsewhere_is_planned_where_it_is_named(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    (tmp_path / "store").rename(tmp_path / "other")
    code, report = verify_by_command(path, "--tokens", tmp_path / "other")
    assert (code, report["plan"]["compared"]) == (0, True)


def test_another_store_of_the_same_lengths_is_not_compared(tmp_path: Path) -> None:
    path = make_shards(tmp_path / "first")
    make_shards(tmp_path / "second", seed=1)
    shutil.rmtree(tmp_path / "first" / "store")
    (tmp_path / "second" / "store").rename(tmp_path / "first" / "store")
    code, report = verify_by_command(path)
    assert (code, report["plan"]["compared"]) == (0, False)
    assert "not a token store that these shards were packed from" in report["plan"]["why_not"]


def claim_another_visit(manifest: dict[str, Any]) -> None:
    ledger = manifest["ledger"]
    ledger["num_repeated_sequences"] += 1
    ledger["num_dropped_sequences"]["passes"] += 1


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        (
            "packed, passes",
            claim_another_visit,
            "num_repeated_sequences is 70, the plan has 69",
        ),
        (
            "packed, share",
            lambda manifest: manifest["stores"][0].update(passes="2.4"),
            "passes of store 1 is 2.4, the plan has 2.5",
        ),
    ],
)
def test_visits_that_the_options_do_not_give_are_found(
    good: dict[str, Path],
    tmp_path: Path,
    kind: str,
    change: Callable[[dict[str, Any]], object],
    what: str,
) -> None:
    path = copy_of(good[kind], tmp_path)
    change_manifest(path, change)
    assert what in [finding.what for finding in verify(path).findings]


def test_options_that_pack_refuses_for_this_store_are_a_fault(tmp_path: Path) -> None:
    path = make_shards(tmp_path, layout="padded", buckets=(4, 8, 16))
    for options in (
        {"overflow": "error", "buckets": [4, 8]},
        {"drop_shorter": 99},
        {"where": ["label = 3"]},
    ):
        change_manifest(path, lambda manifest, options=options: manifest["options"].update(options))
        keys = read_manifest_json(path)["options"]["buckets"]
        change_manifest(path, lambda manifest, keys=keys: manifest.update(bucket_keys=keys))
        code, report = verify_by_command(path)
        assert code == 1
        assert any("pack refuses" in finding["what"] for finding in report["findings"])


@pytest.mark.parametrize(
    ("options", "forged", "num_rows"),
    [
        ({**VARLEN, "max_tokens": 1000}, {"max_tokens": 1}, 1700),
        ({}, {"passes": "1=10000"}, 20_000),
    ],
    ids=["varlen", "packed"],
)
def test_more_rows_than_any_shard_has_are_not_planned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    forged: dict[str, Any],
    num_rows: int,
) -> None:
    monkeypatch.setattr(plan_comparison, "FREE_ROWS", 4)
    path = make_shards(tmp_path, [900, 800], **options)
    assert verify(path).findings == []

    def forge(manifest: dict[str, Any]) -> None:
        manifest["options"].update(forged)
        manifest["stores"][0]["passes"] = forged.get("passes", "1=1").removeprefix("1=")

    change_manifest(path, forge)
    what = f"the options make {num_rows:,} rows of the stores, the shards have 2"
    assert what in [finding.what for finding in verify(path).findings]


def test_bucket_key_that_the_plan_does_not_choose_is_found(tmp_path: Path) -> None:
    options = {"buckets": "auto", "num_buckets": 3, "last_batch": "drop", "batch_size": 2}
    path = make_shards(tmp_path, LENGTHS, **options)
    keys = read_manifest_json(path)["bucket_keys"]
    change_manifest(path, lambda manifest: manifest.update(bucket_keys=[*keys[:-1], keys[-1] + 1]))
    (finding,) = verify(path).findings
    assert finding.what == (f"bucket_keys are {[*keys[:-1], keys[-1] + 1]}, the plan has {keys}")


MORE_SEEDS = [range(first, first + 50) for first in range(15, 1000, 50)]


@pytest.mark.parametrize(
    "seeds", [range(15), *(pytest.param(seeds, marks=SLOW) for seeds in MORE_SEEDS)], ids=str
)
def test_random_shards_are_the_planned_ones(tmp_path: Path, seeds: range) -> None:
    num_packed = 0
    for seed in seeds:
        draws = random.Random(seed)
        lengths, options = draw_lengths(draws), draw_pack_options(draws)
        try:
            path = make_shards(tmp_path / str(seed), lengths, **options)
        except (OptionError, DataError):  # options that do not go together, or leave nothing
            continue
        num_packed += 1
        report = verify(path)
        assert [str(finding) for finding in report.findings] == [], (seed, options)
        assert report.plan.compared
        plan_by_another_version(path)  # what the options select is compared all the same
        assert [str(finding) for finding in verify(path).findings] == [], (seed, options)
    assert num_packed > len(seeds) // 4


def test_store_that_changes_under_the_comparison_is_named(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path / "first", LENGTHS))
    _, found, _ = plan_comparison.plan_again(shards, open_store(tmp_path / "first" / "store"))
    make_shards(tmp_path / "other", [*LENGTHS[1:], 7])
    other = open_store(tmp_path / "other" / "store")
    assert isinstance(found, plan_comparison.PlannedShards)
    planned = plan_comparison.PlannedShards(shards, Selection(other, shards.options), found.plan)
    with pytest.raises(FolderError, match=f"^{other.path}: changed since this run began"):
        planned.find_rows(0)
