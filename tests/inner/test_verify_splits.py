"""Splits: good ones pass, and whatever is moved, repeated or left out between them is found."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from forgeries import Forgery, put_together, take_apart
from here import HERE
from shard_reference import (
    change_manifest,
    make_column_store,
    make_store,
    plan_by_another_version,
)

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.pack import pack
from seqpack_cli.tokens.store import open_store
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.integers import split_documents
from seqpack_cli.verification.integers.split_documents import SplitOwners, find_shared
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import SplitsReport

pytestmark = pytest.mark.usefixtures("one_thread")

SPLIT = "train=0.6,validation=0.2,test=0.2"
COLUMNS = ("label", "score", "number", "id", "tags")


def draw_texts(seed: int, count: int = 60) -> list[str]:
    """Draw texts, a few of them several times, some longer than --max-length."""
    draws = random.Random(seed)
    texts = ["".join(draws.choices("abcd ", k=draws.randint(1, 30))).strip() for _ in range(count)]
    return [text or "x" for text in [*texts, *texts[:6]]]


def make_splits(folder: Path, *, num_stores: int = 2, **options: Any) -> Path:
    """Make stores folder/s0/store, … of documents in pieces, and pack their splits."""
    stores = []
    for number in range(num_stores):
        (folder / f"s{number}").mkdir(parents=True)
        texts = draw_texts(number)
        make = make_column_store if options.get("split_by") else make_store
        stores.append(make(folder / f"s{number}", texts, max_length=12))
        stores[-1] = stores[-1].rename(folder / f"corpus{number}")
    options = {"split": SPLIT, "batch_size": 4, **options}
    pack(stores, folder / "out", PackOptions(**options), executor=HERE)
    return folder / "out"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_splits(tmp_path_factory.mktemp("splits"))


@pytest.fixture
def out(good: Path, tmp_path: Path) -> Path:
    """Return a copy of the splits and their stores, to be changed."""
    shutil.copytree(good.parent, tmp_path / "copy")
    return tmp_path / "copy" / "out"


def verify(path: Path, **options: Any) -> SplitsReport:
    report = verify_run.verify(path, VerifyOptions(**{"level": "structure", **options}))
    assert isinstance(report, SplitsReport)
    return report


def say(report: SplitsReport) -> list[str]:
    return [str(finding) for finding in report.findings]


def hide_stores(out: Path) -> None:
    for path in out.parent.glob("corpus*"):
        path.rename(path.with_name(f"hidden{path.name}"))


def test_good_splits_pass_all_levels(good: Path) -> None:
    report = verify(good, level="backward", sample=2, hidden_size=8)
    assert say(report) == []
    assert report.passed
    assert report.documents.compared
    assert report.documents.num_documents == 2 * len(draw_texts(0))
    assert [*report.splits] == ["train", "validation", "test"]
    assert all(split.plan.compared for split in report.splits.values())
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert set(document) == {"passed", "path", "splits", "documents", "findings", "controls"}


def test_command_shows_every_split_and_all_together(out: Path) -> None:
    shown = run("verify", out, "--level", "structure")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[-4:] == [
        f"{out}: 3 splits: train, validation, test",
        f"  documents: {2 * len(draw_texts(0))} packed, each in exactly one split",
        "",
        "all splits passed",
    ]
    assert sum(line.strip() == "all levels passed" for line in lines) == 3
    change_splits(out, lambda manifest: manifest["splits"][0].update(num_documents=1))
    shown = run("verify", out, "--level", "structure")
    assert shown.exit_code == 1
    *_, finding, empty, verdict = shown.stdout.splitlines()
    place = "structure: manifest.json: num_documents of split 'train'"
    assert finding.startswith(f"{place} is 1, the stores give ")
    assert (empty, verdict) == ("", "1 fault")
    found = json.loads(run("verify", out, "--level", "structure", "--json").stdout)
    assert (found["passed"], len(found["findings"])) == (False, 1)


def test_without_the_stores_the_report_says_what_was_not_compared(out: Path) -> None:
    hide_stores(out)
    report = verify(out)
    assert report.passed
    assert not report.documents.compared
    assert report.documents.why_not == (f"{out / 'train'}: its token store is not at ../../corpus0")
    lines = run("verify", out, "--level", "structure").stdout.splitlines()
    assert lines[-3:] == [
        f"  documents: not compared: {report.documents.why_not}",
        "",
        "all splits passed; the documents were not compared",
    ]


def change_splits(out: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of all splits, with the checksums of the splits' manifests."""
    change_manifest(out, change)

    def seal(manifest: dict[str, Any]) -> None:
        for entry in manifest["splits"]:
            raw = (out / entry["name"] / "manifest.json").read_bytes()
            entry["blake3"] = blake3(raw).hexdigest()

    change_manifest(out, seal)


def plan_splits_by_another_version(out: Path) -> None:
    for name in ("train", "validation", "test"):
        plan_by_another_version(out / name)
    change_splits(out, lambda _: None)


def count_rows(forgery: Forgery) -> np.ndarray:
    rows = [row for batch in forgery.batches for row in batch.rows]
    starts = [start for _, start, _ in rows]
    return np.array([starts.count(0), sum(len(ids) for _, _, ids in rows)])


def forge(out: Path, change: Callable[[Forgery, Forgery], object]) -> None:
    """Change two splits and make all counts, ledgers and checksums agree.

    What is then too much or missing is counted in a third split.
    """
    forgeries = [take_apart(out / name, 0) for name in ("train", "test")]
    before = [count_rows(forgery) for forgery in forgeries]
    change(*forgeries)
    for forgery, counts in zip(forgeries, before, strict=True):
        moved = (count_rows(forgery) - counts).tolist()
        ledger = forgery.manifest["ledger"]
        for name, number in zip(("num_sequences", "num_tokens"), moved, strict=True):
            ledger[name.replace("num_", "num_dropped_")]["other_splits"] -= number
        put_together(forgery)

        def count(manifest: dict[str, Any], name: str = forgery.path.name) -> None:
            for entry in manifest["splits"]:
                sign = (entry["name"] == name) - (entry["name"] == "validation")
                entry["num_sequences"] += sign * moved[0]  # noqa: B023 - called at once
                entry["num_tokens"] += sign * moved[1]  # noqa: B023

        change_manifest(out, count)
    change_splits(out, lambda _: None)


def move_batch(train: Forgery, test: Forgery) -> None:
    test.shards[0].append(train.shards[0].pop())


def test_batch_moved_to_another_split_is_found(out: Path) -> None:
    forge(out, move_batch)
    findings = say(verify(out))
    assert any(finding.startswith("structure: train/") for finding in findings)
    assert any(finding.startswith("structure: test/") for finding in findings)
    assert any("is in split 'test', expected 'train'" in finding for finding in findings)


def test_batch_moved_between_splits_of_another_plan_version_is_found(out: Path) -> None:
    forge(out, move_batch)
    plan_splits_by_another_version(out)
    report = verify(out)
    assert not any(split.plan.compared for split in report.splits.values())
    assert any("is packed 0 times, the options" in each for each in say(report))
    assert any("is in split 'test', expected 'train'" in finding for finding in say(report))


def test_sequence_in_two_splits_is_found_without_the_stores(out: Path) -> None:
    def copy_batch(train: Forgery, test: Forgery) -> None:
        test.shards[0].append(train.shards[0][-1])

    forge(out, copy_batch)
    hide_stores(out)
    findings = say(verify(out))
    last = take_apart(out / "train", 0).batches[-1].rows
    first, others = min(index for index, _, _ in last), len(last) - 1
    what = f"structure: test: sequence {first} is in split 'train' too, and so are {others} more"
    assert what in findings


def test_sequence_left_out_of_its_split_is_found_without_the_stores(out: Path) -> None:
    def leave_out(train: Forgery, test: Forgery) -> None:
        train.shards[0].pop()

    forge(out, leave_out)
    hide_stores(out)
    report = verify(out)
    assert not any(split.findings for split in report.splits.values())  # a ledger that adds up
    names = ["num_sequences", "num_tokens"]
    assert [finding.what.partition(" ")[0] for finding in report.findings] == names
    assert all("of split 'validation' is " in finding.what for finding in report.findings)


def own(out: Path, store: Any) -> SplitOwners:
    """Return the split of each sequence, as the shards have it."""
    owners = SplitOwners(["train", "validation", "test"])
    for number, name in enumerate(owners.names):
        visits = np.zeros(len(store), np.uint8)
        for batch in take_apart(out / name, 0).batches:
            visits[[index for index, _, _ in batch.rows]] = 1
        assert list(owners.mark(number, visits)) == []
    return owners


@pytest.mark.parametrize("hashes_per_group", [1 << 23, 5])
def test_document_and_text_in_two_splits_are_found(
    good: Path, monkeypatch: pytest.MonkeyPatch, hashes_per_group: int
) -> None:
    monkeypatch.setattr(LIMITS, "hashes_per_group", hashes_per_group)
    store = open_store([good.parent / "corpus0", good.parent / "corpus1"])
    owners = own(good, store)
    assert find_shared(store, owners, by=None) == (2 * len(draw_texts(0)), [])
    moved = owners.copy()
    assert moved.move_sequence(store)
    (what, *_) = find_shared(store, moved, by=None)[1]
    assert what.startswith("one document is in two splits: '")
    texts = draw_texts(0)
    short = next(place for place, text in enumerate(texts[:6]) if len(text) < 12)
    origins = [store.locate(index) for index in range(store.folders[0].num_sequences)]
    index = next(place for place, origin in enumerate(origins) if origin.document == short)
    owners.owners[index] = (owners.owners[index] + 1) % 3
    (what,) = find_shared(store, owners, by=None)[1]
    assert what.startswith("the same text is in two splits: '")
    assert f":{short + 1}, sequence {index}" in what
    assert f":{len(texts) - 6 + short + 1}, sequence " in what


def test_value_in_two_splits_is_found(tmp_path: Path) -> None:
    options = {"split_by": "label", "drop_column": COLUMNS}  # forgeries have no columns
    out = make_splits(tmp_path, num_stores=1, split="train=0.5,test=rest", **options)
    assert say(verify(out)) == []
    forge(out, move_batch)
    assert any("the same value of column 'label' is in two" in what for what in say(verify(out)))


def test_an_empty_set_is_no_proof(good: Path) -> None:
    owners = SplitOwners(["train", "test"])
    assert [*owners.mark(0, np.zeros(3, np.uint8))] == ["no sequences, expected at least one"]
    store = open_store(good.parent / "corpus0")
    owners.owners = np.full(len(store), split_documents.NO_SPLIT, np.int16)
    assert find_shared(store, owners, by=None) == (0, [])  # which the caller refuses
    assert not SplitsReport("out").passed


def test_splits_whose_shards_are_all_missing_prove_nothing(out: Path) -> None:
    for shard in out.glob("*/shard-*"):
        shard.unlink()
    findings = say(verify(out))
    for name in ("train", "validation", "test"):
        assert f"structure: {name}: no sequences, expected at least one" in findings
    what = "structure: manifest.json: no documents, expected at least one in each split"
    assert what in findings


def move_size(manifest: dict[str, Any]) -> None:
    manifest["stores"][0]["num_tokens"] += 1
    manifest["stores"][1]["num_tokens"] -= 1


def empty_split(manifest: dict[str, Any]) -> None:
    first, second, _ = manifest["splits"]
    first["num_sequences"] += second["num_sequences"]
    second["num_sequences"] = 0


MANIFEST_DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "sequences": (empty_split, "num_sequences of split 'validation' is 0, expected at least 1"),
    "documents": (
        lambda manifest: manifest["splits"][0].update(num_documents=1),
        "num_documents of split 'train' is 1, the stores give",
    ),
    "store": (move_size, "split 'train' was packed from other stores than those named"),
    "path": (
        lambda manifest: manifest["stores"][1].update(path="../other"),
        "path of store 2 is '../other', split 'train' has it at '../corpus1'",
    ),
    "layout": (
        lambda manifest: manifest["options"].update(padding_side="left", layout="padded"),
        "layout of split 'train' is 'packed', expected 'padded'",
    ),
}


@pytest.mark.parametrize("kind", MANIFEST_DAMAGE)
def test_damaged_manifest_of_splits_is_found(out: Path, kind: str) -> None:
    change, what = MANIFEST_DAMAGE[kind]
    change_manifest(out, change)
    findings = say(verify(out))
    assert any(finding.startswith(f"structure: manifest.json: {what}") for finding in findings)


def test_sequences_that_splits_claim_of_each_other_are_found_without_the_stores(out: Path) -> None:
    def claim(manifest: dict[str, Any]) -> None:
        manifest["splits"][0]["num_sequences"] -= 1
        manifest["splits"][2]["num_sequences"] += 1

    hide_stores(out)
    change_manifest(out, claim)
    train, test = (say(verify(out))[place] for place in (0, 1))
    assert re.search(r"num_sequences of split 'train' is \d+, its ledger leaves out \d+ of", train)
    assert re.search(r"num_sequences of split 'test' is \d+, its ledger leaves out \d+ of", test)


def test_what_the_splits_have_in_common_is_compared(out: Path) -> None:
    change_manifest(out / "test", lambda manifest: manifest.update(pad_id=1))
    change_splits(out, lambda _: None)
    found = "structure: manifest.json: pad_id of split 'test' is 1, expected 256"
    assert found in say(verify(out))


def test_replaced_split_is_refused(out: Path) -> None:
    change_manifest(out / "test", lambda manifest: manifest.update(pad_id=1))
    with pytest.raises(FolderError, match=r"not the shards that .*manifest\.json names"):
        verify(out)


def test_damaged_shard_of_a_split_is_found(out: Path) -> None:
    (out / "test" / "shard-00000.safetensors").unlink()
    findings = say(verify(out))
    assert "structure: test/shard-00000.safetensors: missing" in findings


def test_self_test_catches_every_damage(tmp_path: Path) -> None:
    out = make_splits(tmp_path, passes="corpus0=2.5", store_column="source")
    report = verify(out, level="roundtrip", self_test=True)
    assert say(report) == []
    controls = {each.name: each for each in report.splits["train"].controls}
    for name, level in {
        "duplicate index": "structure",
        "sequence of another split": "structure",
        "visit left out": "structure",
        "visit too many": "structure",
        "wrong store": "roundtrip",
    }.items():
        assert (controls[name].caught, controls[name].level) == (True, level), controls[name]
    assert [(each.name, each.caught) for each in report.controls] == [
        ("sequence in two splits", True),
        ("document in two splits", True),
    ]


def test_controls_that_are_missed_are_faults(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitOwners, "mark", lambda *_: iter(()))
    findings = say(verify(out, self_test=True))
    assert any("self-test did not catch: sequence in two splits" in each for each in findings)


STORES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "passes": lambda draws: {
        "passes": f"1={draws.choice(['0.3', '1.5', '3.25'])},2={draws.choice(['0.5', '1', '4'])}"
    },
    "share": lambda draws: {
        "share": f"1={draws.choice(['0.1', '0.5'])},2=rest",
        "max_passes": draws.choice([None, "3"]),
    },
    "one pass": lambda _: {},
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))]
)
def test_random_splits_and_passes_have_no_finding(tmp_path: Path, kind: str, seed: int) -> None:
    draws = random.Random(f"{kind} {seed}")
    layout: dict[str, Any] = draws.choice(
        [{}, {"layout": "padded", "last_batch": "pad"}, {"layout": "padded", "last_batch": "drop"}]
    )
    if draws.random() < 0.4:
        layout = {"layout": "varlen", "batch_size": None, "max_tokens": draws.choice([7, 40])}
    options = {**layout, **STORES[kind](draws), "seed": seed if kind != "one pass" else 0}
    if draws.random() < 0.5:
        options["shuffle"] = True
    if layout.get("layout") != "varlen" and draws.random() < 0.5:
        options |= {"drop_shorter": 3, "where": ("@length != 7",)}
    if draws.random() < 0.5:
        options["store_column"] = "source"
    try:
        out = make_splits(tmp_path, split_seed=seed, **options)
    except DataError:  # a split without a batch
        return
    report = verify(out, level="roundtrip", sample=2)
    assert say(report) == [], options
    assert report.documents.compared
    plan_splits_by_another_version(out)
    assert say(verify(out)) == [], options
