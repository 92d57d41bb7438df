"""Stores and shards without a tokenizer: what needs no text works, and what needs it says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import check_refused, run
from imported_store import TEXTS, change_manifest, make_imported, write_pair

from seqpack_cli import PackOptions, diff, inspect
from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.training.epoch_sampler import EpochSampler
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_batches import StoreBatches
from seqpack_cli.training.store_dataset import StoreDataset

IDS = [list(text.encode()) for text in TEXTS if text]
NO_TOKENIZER = "no tokenizer: ids are not decoded"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_imported(tmp_path / "store")


def pack(store: Path, *options: object, name: str = "shards") -> Path:
    shards = store.parent / name
    result = run("pack", store, "-o", shards, *options, "-q")
    assert result.exit_code == 0, result.stderr
    return shards


def show(*arguments: object) -> str:
    result = run("inspect", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


# What inspect shows


def test_inspect_shows_ids_and_says_once_that_they_are_not_decoded(store: Path) -> None:
    shards = pack(store)
    for folder in store, shards:
        numbers, shown = show(folder), show(folder, "--sequence", 0)
        assert numbers.count("tokenizer          none: ids are not decoded\n") == 1
        assert "│84│104│101│32│102│101│114│114│121│\n" in shown
        assert shown.count(f"text               {NO_TOKENIZER}\n") == 1
    batch = show(shards, "--batch", 0)
    assert batch.count(NO_TOKENIZER) == 1
    assert "    2         0        9  84 104 101 32 102 101 114 114 121\n" in batch
    assert inspect(shards)["tokenizer_blake3"] is None


def test_inspect_as_json_has_ids_and_no_text(store: Path) -> None:
    found = json.loads(show(pack(store), "--batch", 0, "--json"))
    assert [row["text"] for row in found["rows"]] == [None] * 4
    assert [row["ids"] for row in found["rows"]] == sorted(IDS, key=len, reverse=True)
    found = json.loads(show(store, "--sequence", 2, "--json"))
    assert (found["text"], found["tokens"]) == (None, [{"text": None, "ids": [120]}])


def test_vocabulary_counts_ids_without_spellings(tmp_path: Path) -> None:
    store = make_imported(tmp_path / "store", eos_id=46, unk_id=32)
    shown = show(store, "--vocabulary")
    assert "            32              10  15.15%\n" in shown
    assert "unknown tokens  10, 15.15% of all tokens: id 32\n" in shown
    found = json.loads(show(store, "--vocabulary", "--json"))
    assert found["num_used_ids"] == len({id_ for ids in IDS for id_ in ids})
    assert found["missing"] == {"num_ids": 0, "num_tokens": 0, "examples": []}
    nothing = {"token": None, "text": None, "bytes": None}
    counted = {"id": 46, **nothing, "num_tokens": 2, "share": 0.030303}
    assert found["special_tokens"][1] == counted
    assert found["unknown"]["examples"][0]["text"] is None


def test_vocabulary_of_too_many_ids_is_refused(tmp_path: Path) -> None:
    store = make_imported(tmp_path / "store", vocab_size=2**31 - 1)
    check_refused(
        run("inspect", store, "--vocabulary"),
        2,
        "--vocabulary: vocab_size is 2,147,483,647, expected at most 16,777,216 without a "
        "tokenizer",
        "hint: import the ids again with a smaller --vocab-size, or with --tokenizer FILE",
    )


def test_pictures_and_pages_show_ids(store: Path) -> None:
    shards = pack(store)
    page, picture = store.parent / "page.html", store.parent / "batch.svg"
    show(shards, "--html", page)
    show(pack(store, "--drop-longer", 9, name="short"), "--batch", 0, "--plot", picture)
    assert '<span title="id 84">84</span><span title="id 104">104</span>' in page.read_text()
    assert ">114</text>" in picture.read_text()


def test_diff_compares_ids_that_cannot_be_decoded(store: Path, tmp_path: Path) -> None:
    other = make_imported(tmp_path / "other", texts=("The fairy", *TEXTS[1:]))
    first = diff(store, other)["sequences"]["first"]
    assert (first["position"], first["a"]["ids"][5], first["b"]["ids"][5]) == (5, 101, 97)
    assert first["a"]["text"] is None
    assert (
        "  text             unknown: these ids cannot be decoded"
        in run("diff", store, other).stdout
    )


def test_doubled_bos_of_imported_ids_is_found(tmp_path: Path) -> None:
    store = make_imported(tmp_path / "store", bos_id=ord("o"), texts=("ooze", "x"))
    (warning,) = inspect(store)["warnings"]
    assert warning["message"] == "sequence 0 begins with two BOS tokens"
    assert warning["hint"] == "import ids that begin with one BOS token"


# Pack, unpack and verify


def test_unpack_as_text_is_refused(store: Path, tmp_path: Path) -> None:
    shards = pack(store)
    check_refused(
        run("unpack", shards, "-o", tmp_path / "a.jsonl", "--text"),
        2,
        f"{shards}: has no tokenizer, expected one to decode ids",
        "hint: import the ids again with --tokenizer FILE instead of --vocab-size",
    )
    assert not (tmp_path / "a.jsonl").exists()
    assert run("unpack", shards, "-o", tmp_path / "a.jsonl").exit_code == 0
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["ids"] for line in lines] == IDS


def test_padding_has_the_id_that_the_store_names(tmp_path: Path) -> None:
    shards = pack(make_imported(tmp_path / "store", pad_id=256), "--layout", "padded")
    assert inspect(shards)["pad_id"] == 256


@pytest.mark.parametrize("layout", ["packed", "padded", "varlen"])
def test_verify_passes_all_levels(store: Path, layout: str) -> None:
    sizes = ("--max-tokens", 32) if layout == "varlen" else ("--pad-id", 0)
    shards = pack(store, "--layout", layout, *sizes)
    assert not (shards / "tokenizer.json").exists()
    result = run("verify", shards, "--self-test")
    assert result.exit_code == 0, result.stdout


def test_a_tokenizer_that_the_manifest_does_not_have_is_found(store: Path) -> None:
    shards = pack(store)
    for folder in store, shards:
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(FolderError) as caught:
            inspect(folder)
        assert caught.value.message == f"{folder / 'tokenizer.json'}: not in the manifest"
    (store / "tokenizer.json").unlink()
    result = run("verify", shards, "--level", "structure")
    assert result.exit_code == 1
    assert "tokenizer.json: not in the manifest" in result.stdout


def test_training_reads_what_has_no_tokenizer(store: Path) -> None:
    dataset = StoreDataset(store)
    assert [dataset[index][0].tolist() for index in range(len(dataset))] == IDS
    options = PackOptions(layout="padded", batch_size=2)
    with pytest.raises(OptionError, match="no pad_id and no tokenizer"):
        StoreBatches(dataset, options).make_collate()
    batches = StoreBatches(dataset, replace(options, pad_id=7))
    first = next(iter(EpochSampler(batches, shuffle=False)))
    rows = batches.make_collate()([dataset[index] for index in first])
    assert rows.ids.tolist() == [IDS[3], IDS[1] + [7] * (len(IDS[3]) - len(IDS[1]))]
    batch = ShardDataset(pack(store, "--layout", "padded", "--pad-id", 7), labels="next")[0]
    assert batch.labels[3].tolist() == [-100] * len(IDS[3])  # of a single token


# Manifests


def test_padding_and_empty_sequences_that_were_left_out_balance(store: Path) -> None:
    counts = {"num_padding_tokens": 4, "num_encoded_tokens": 70, "num_empty_sequences": 3}
    change_manifest(store, {"ledger": counts, "options": {"attention_mask_field": "mask"}})
    shown = show(store)
    assert "  padding left out   4\n" in shown
    assert "  empty sequences    3\n" in shown


def test_documents_of_texts_and_of_imported_ids_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    write_pair(tmp_path / "b", [text.encode() for text in TEXTS])
    for command, source in (("tokenize", "a.txt"), ("import", "b")):
        output = tmp_path / f"store-{source[0]}"
        result = run(command, tmp_path / source, "--tokenizer", "bytes", "-o", output, "-q")
        assert result.exit_code == 0, result.stderr
    found = diff(tmp_path / "store-a", tmp_path / "store-b")
    assert (found["sequences"]["num_differing"], found["documents"]["num_differing"]) == (0, None)
    shown = run("diff", tmp_path / "store-a", tmp_path / "store-b").stdout
    assert "  in both            unknown: texts and imported ids are not compared\n" in shown
    both = (tmp_path / "store-a", tmp_path / "store-b", "--split", "one=0.5,two=0.5")
    assert run("pack", *both, "-o", tmp_path / "splits", "-q").exit_code == 0
    shown = run("diff", tmp_path / "splits" / "one", tmp_path / "splits" / "two").stdout
    assert "  in both            unknown: texts and imported ids are not compared\n" in shown
