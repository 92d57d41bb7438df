"""Targets and overlap of real stores: what pack drops and counts, what unpack and verify say."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from column_corpus import describe, expect_values
from command import check_refused, run
from here import HERE
from hypothesis import given, settings
from hypothesis import strategies as st

from seqpack_cli import (
    EpochSampler,
    PackOptions,
    StoreBatches,
    StoreDataset,
    TokenizeOptions,
    VerifyOptions,
    open_shards,
    open_store,
    pack,
    plan,
    tokenize,
    verify,
)
from seqpack_cli.errors import OptionError
from seqpack_cli.shards.unpack import write_sequences
from seqpack_cli.tokens.options import TargetOptions

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3, "shuffle": True},
    "padded": {"layout": "padded", "padding_side": "left", "batch_size": 4, "last_batch": "pad"},
    "varlen": {"layout": "varlen", "max_tokens": 5},
}
# Pieces of 8 tokens: records 1, 3 and the first piece of record 2 have no target.
ANSWERS = [("ab", "cd"), ("only", ""), ("a long prompt ", "yes"), ("no answer", ""), ("", "xyz")]
WITH_TARGETS = [0, 3, 4, 7]  # sequences


def write_json(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a store of prompts and completions, `qa`, and one of plain text."""
    folder = tmp_path_factory.mktemp("targets")
    records = [{"p": prompt, "c": answer, "lang": "de"} for prompt, answer in ANSWERS]
    of_fields = TargetOptions(prompt_field="p", completion_field="c")
    options = TokenizeOptions(targets=of_fields, max_length=8, overlap=1, keep=["lang:class"])
    tokenize([write_json(folder / "qa.jsonl", records)], folder / "qa", options, executor=HERE)
    texts = [{"text": text, "lang": "en"} for text in ("plain", "text")]
    options = TokenizeOptions(keep=["lang:class"])
    tokenize([write_json(folder / "en.jsonl", texts)], folder / "en", options, executor=HERE)
    return folder


def read_targets(store: Path) -> list[list[int]]:
    """Return the targets of each sequence of a store of one part."""
    opened = open_store(store)
    values = opened.part_column(0, "targets").tolist()
    return [[values.pop(0) for _ in ids] for ids in opened]


def unpack(shards: Path) -> list[dict[str, Any]]:
    written: list[bytes] = []
    write_sequences(open_shards(shards), written.append)
    return [json.loads(line) for line in b"".join(written).splitlines()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sequences_without_a_target_are_dropped_and_counted(
    folder: Path, tmp_path: Path, layout: str
) -> None:
    """Pieces that pack cuts stay, also if they have none themselves."""
    targets = read_targets(folder / "qa")
    assert [index for index, found in enumerate(targets) if any(found)] == WITH_TARGETS
    options = PackOptions(**LAYOUTS[layout])
    manifest, _ = pack(folder / "qa", tmp_path / "shards", options, executor=HERE)
    lengths = [len(found) for found in targets]
    ledger, left_out = manifest["ledger"], {*range(len(targets))} - {*WITH_TARGETS}
    assert ledger["num_dropped_sequences"] == {"no_target": len(left_out)}
    assert ledger["num_dropped_tokens"] == {"no_target": sum(lengths[i] for i in left_out)}
    assert ledger["num_tokens"] == sum(lengths[i] for i in WITH_TARGETS)
    assert ledger["num_target_tokens"] == sum(map(sum, targets))
    rows = unpack(tmp_path / "shards")
    assert [row["index"] for row in rows] == WITH_TARGETS
    assert verify(tmp_path / "shards", VerifyOptions(level="roundtrip")).findings == []


def test_keep_without_target_packs_all(folder: Path, tmp_path: Path) -> None:
    result = run("pack", folder / "qa", "--keep-without-target", "-o", tmp_path / "all")
    assert result.exit_code == 0, result.output
    found = sum(map(sum, read_targets(folder / "qa")))
    num_tokens = open_store(folder / "qa").num_tokens
    assert f"  {found / num_tokens:.2%} of the tokens are targets\n" in result.stdout
    assert "dropped" not in result.stdout
    assert len(unpack(tmp_path / "all")) == len(open_store(folder / "qa"))


def test_a_condition_is_a_reason_before_a_missing_target(folder: Path, tmp_path: Path) -> None:
    options = PackOptions(where=["@length < 8"], drop_shorter=4)
    manifest, _ = pack(folder / "qa", tmp_path / "shards", options, executor=HERE)
    lengths = open_store(folder / "qa").lengths.tolist()
    expected = {"drop_shorter": 0, "where": 0, "no_target": 0}
    for index, length in enumerate(lengths):
        reason = "drop_shorter" if length < 4 else "where" if length >= 8 else "no_target"
        if reason != "no_target" or index not in WITH_TARGETS:
            expected[reason] += 1
    assert manifest["ledger"]["num_dropped_sequences"] == expected
    assert min(expected.values()) > 0


def test_a_store_without_any_target_is_refused_with_the_option(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.jsonl", [{"p": "prompt", "c": ""}] * 2)
    fields = ("--prompt-field", "p", "--completion-field", "c")
    assert run("tokenize", path, *fields, "-o", tmp_path / "store").exit_code == 0
    for command in (("pack", "-o", tmp_path / "shards"), ("plan",)):
        result = run(command[0], tmp_path / "store", *command[1:])
        message = f"{tmp_path / 'store'}: no batch is left, sequences dropped: 2 without a target"
        hint = "to pack sequences without a target too, pass --keep-without-target"
        check_refused(result, 3, message, f"hint: {hint}")


@pytest.mark.parametrize("store", ["en", "qa"])
def test_keep_without_target_needs_targets(folder: Path, tmp_path: Path, store: str) -> None:
    options = PackOptions(keep_without_target=True)
    if store == "qa":
        options = PackOptions(keep_without_target=True, drop_column=["targets"])
    with pytest.raises(OptionError) as caught:
        pack(folder / store, tmp_path / "shards", options, executor=HERE)
    assert caught.value.message == "--keep-without-target has no effect: every token is a target"


def test_plan_counts_what_pack_packs(folder: Path) -> None:
    numbers = plan(folder / "qa")
    assert numbers["num_sequences"] == len(WITH_TARGETS)
    left_out = len(open_store(folder / "qa")) - len(WITH_TARGETS)
    assert numbers["num_sequences_without_target"] == left_out
    shown = run("plan", folder / "qa").stdout
    assert f"\nLeft out: {left_out} sequences without a target (see --keep" in shown
    every = plan(folder / "qa", keep_without_target=True)
    assert every["num_sequences"] == len(open_store(folder / "qa"))
    shown = run("plan", folder / "qa", "--keep-without-target").stdout
    assert "No sequence is dropped; varlen splits" in shown


def test_batches_while_training_have_the_sequences_of_pack(folder: Path) -> None:
    """Whichever columns are read."""
    dataset = StoreDataset(folder / "qa", columns=[])
    batches = StoreBatches(dataset, PackOptions(batch_size=2))
    taken = [key for keys in EpochSampler(batches, seed=0) for key in keys]
    assert sorted(taken) == WITH_TARGETS
    every = StoreBatches(dataset, PackOptions(batch_size=2, drop_column=["targets"]))
    assert len([key for keys in EpochSampler(every, seed=0) for key in keys]) == len(dataset)
    assert every.fingerprint != batches.fingerprint


# Several stores


def test_a_store_without_targets_counts_every_token(folder: Path, tmp_path: Path) -> None:
    stores = open_store([folder / "en", folder / "qa"])
    assert [*stores.columns] == ["targets", "overlap", "lang"]
    assert stores.part_column(0, "targets").tolist() == [1] * stores.folders[0].num_tokens
    assert stores.part_column(0, "overlap").tolist() == [0, 0]
    targets = [1] * 9 + [value for found in read_targets(folder / "qa") for value in found]
    options = PackOptions(keep_without_target=True, store_column="store", batch_size=3)
    pack([folder / "en", folder / "qa"], tmp_path / "shards", options, executor=HERE)
    rows = unpack(tmp_path / "shards")
    for row in rows:
        start, columns = int(stores.lengths[: row["index"]].sum()), row["columns"]
        start += columns["overlap"]
        assert columns["targets"] == targets[start : start + len(row["ids"])]
        assert columns["store"] == ("en" if row["index"] < 2 else "qa")
    assert verify(tmp_path / "shards", VerifyOptions(level="roundtrip")).findings == []
    sequence = StoreDataset([folder / "en", folder / "qa"])[1]
    assert sequence.columns["targets"].tolist() == [1] * 4


def test_dropping_targets_of_several_stores_counts_every_token(
    folder: Path, tmp_path: Path
) -> None:
    options = PackOptions(drop_column=["targets"])
    places = [folder / "qa", folder / "en"]
    manifest, _ = pack(places, tmp_path / "shards", options, executor=HERE)
    ledger = manifest["ledger"]
    assert ledger["num_dropped_sequences"] == {}
    assert ledger["num_target_tokens"] == ledger["num_tokens"]
    assert [column["name"] for column in manifest["columns"]] == ["overlap", "lang"]


# Unpack


@settings(max_examples=25)
@given(
    st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(2, 11),
    st.data(),
    st.sampled_from([*LAYOUTS]),
)
def test_unpack_writes_each_token_once(
    texts: list[str], max_length: int, data: st.DataObject, layout: str
) -> None:
    """Ids, columns per token and text, joined by document, are those of the records."""
    overlap = data.draw(st.integers(1, max_length - 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [describe(" ".join(text)) for text in texts]
        options = TokenizeOptions(
            keep=("copy:text", "parity:tags"),
            tag_subtokens="all",
            max_length=max_length,
            overlap=overlap,
        )
        path = write_json(folder / "a.jsonl", records)
        tokenize([path], folder / "store", options, executor=HERE)
        pack(folder / "store", folder / "shards", PackOptions(**LAYOUTS[layout]), executor=HERE)
        store, rows = open_store(folder / "store"), unpack(folder / "shards")
        joined: list[list[int]] = [[] for _ in texts]
        tags: list[list[str | None]] = [[] for _ in texts]
        for row in rows:
            document = store.locate(row["index"]).document
            joined[document] += row["ids"]
            tags[document] += row["columns"]["parity"]
            assert row["columns"]["targets"] == [1] * len(row["ids"])
        assert [bytes(ids).decode() for ids in joined] == [record["text"] for record in records]
        assert tags == [expect_values(ids)["parity"] for ids in joined]


def test_unpack_text_leaves_repeated_tokens_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n")
    cut = ("--max-length", 6, "--overlap", 4)
    assert run("tokenize", tmp_path / "a.txt", *cut, "-o", tmp_path / "store").exit_code == 0
    assert run("pack", tmp_path / "store", "-o", tmp_path / "shards").exit_code == 0
    lines = run("unpack", tmp_path / "shards", "--text", "-o", "-").stdout.splitlines()
    assert "".join(json.loads(line)["text"] for line in lines) == "one two three"
    without = ("--drop-column", "overlap", "-o", tmp_path / "without")
    assert run("pack", tmp_path / "store", *without).exit_code == 0
    first, second, *_ = run("unpack", tmp_path / "without", "--text", "-o", "-").stdout.splitlines()
    assert json.loads(second)["text"].startswith(json.loads(first)["text"][2:])


# What readers and verify refuse


def change_manifest(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("of", ["ledger", "shard"])
def test_a_wrong_number_of_targets_is_found(folder: Path, tmp_path: Path, of: str) -> None:
    pack(folder / "qa", tmp_path / "shards", executor=HERE)

    def change(manifest: dict[str, Any]) -> None:
        entry = manifest["ledger"] if of == "ledger" else manifest["shards"][0]
        entry["num_target_tokens"] += 1

    num_targets = open_shards(tmp_path / "shards").manifest["ledger"]["num_target_tokens"]
    change_manifest(tmp_path / "shards", change)
    (finding, *_) = verify(tmp_path / "shards", VerifyOptions(level="structure")).findings
    holder = "the shards have" if of == "ledger" else "the shard has"
    what = f"num_target_tokens is {num_targets + 1}, {holder} {num_targets}"
    assert (finding.level, finding.what) == ("structure", what)
