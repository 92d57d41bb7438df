"""Manifests of a stranger: whatever they say, a command ends with an error of ours or a finding."""

from __future__ import annotations

import hashlib
import json

import pytest
from command import run


def _change(path, **values):
    manifest = json.loads(path.read_bytes())
    for name, value in values.items():
        inner = manifest
        *keys, last = name.split("__")
        for key in keys:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = value
    path.write_text(json.dumps(manifest))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("ab\nc\n\ndef\n")
    assert run("tokenize", tmp_path / "a.txt", "-o", tmp_path / "tokens").exit_code == 0
    assert run("pack", tmp_path / "tokens", "-o", tmp_path / "shards").exit_code == 0
    return tmp_path


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pad_id": "x"}, "pad_id 'x', expected an id from 0 to 258"),
        ({"pad_id": 259}, "pad_id 259, expected an id from 0 to 258"),
        ({"pad_id": True}, "pad_id True, expected an id from 0 to 258"),
        ({"max_id": 100_000}, "max_id 100,000 does not fit uint16"),
        ({"sources": []}, "the sources have 0 documents, the ledger 4"),
        ({"sources__0__first_document": 5}, "begins at document 5, expected 0"),
        ({"parts__0__ranges__0__source": 7}, "part 0 names source 7"),
        ({"ledger__num_tokens": 2**60}, "field 'num_tokens' is 1152921504606846976"),
    ],
)
def test_hostile_manifest_of_a_store_is_refused(folder, values, said):
    _change(folder / "tokens" / "manifest.json", **values)
    for arguments in (("inspect",), ("inspect", "--sequence", 0), ("pack", "-o", folder / "new")):
        result = run(arguments[0], folder / "tokens", *arguments[1:])
        assert result.exit_code == 4
        assert said in result.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"shards": []}, "no shards"),
        ({"max_id": 2**50}, "max_id 1,125,899,906,842,624 does not fit uint16"),
        ({"pad_id": 70_000}, "pad_id 70000, expected an id from 0 to 258"),
        ({"ledger__num_dropped_sequences": {"a": 1}}, "have other reasons"),
        ({"shards__0__longest": -1}, "field 'longest' is -1, expected a count"),
    ],
)
def test_hostile_manifest_of_shards_is_refused(folder, values, said):
    _change(folder / "shards" / "manifest.json", **values)
    for arguments in (("inspect",), ("verify",), ("unpack", "-o", folder / "rows")):
        result = run(arguments[0], folder / "shards", *arguments[1:])
        assert result.exit_code == 4
        assert said in result.stderr


@pytest.mark.parametrize("path", ["x" * 5000, "\0", "../../../../nowhere", "../a.txt"])
def test_hostile_path_of_the_store_is_no_more_than_a_missing_store(folder, path):
    _change(folder / "shards" / "manifest.json", tokens_path=path)
    assert run("inspect", folder / "shards", "--sequence", 0).exit_code == 0
    assert run("verify", folder / "shards").exit_code == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_id": 5000}, "max_id is 5000, the token store has 258"),
        ({"vocab_size": 1}, "vocab_size is 1, the token store has 259"),
    ],
)
def test_shards_that_describe_other_ids_than_their_store_are_a_fault(folder, values, said):
    _change(folder / "shards" / "manifest.json", **values)
    result = run("verify", folder / "shards", "--level", "roundtrip")
    assert result.exit_code == 1
    assert f"roundtrip: manifest.json: {said}" in result.stdout


def test_index_beyond_the_store_is_a_fault(folder):
    """Dropped sequences in the ledger make room for indices that the store does not have."""
    shard = folder / "shards" / "shard-00000.safetensors"
    header = int.from_bytes(shard.read_bytes()[:8], "little")
    data = bytearray(shard.read_bytes())
    start = 8 + header + 3 * 8  # behind the lengths of three rows
    data[start : start + 8] = (7).to_bytes(8, "little")
    shard.write_bytes(data)
    _change(
        folder / "shards" / "manifest.json",
        shards__0__sha256=hashlib.sha256(data).hexdigest(),
        ledger__num_dropped_sequences={"a": 5},
        ledger__num_dropped_tokens={"a": 0},
    )
    result = run("verify", folder / "shards")
    assert result.exit_code == 1
    assert "batch 0: row 0: original index 7, the token store has 3 sequences" in result.stdout


def test_ids_that_no_memory_could_embed_are_a_fault_before_a_model_is_built(folder):
    """The largest id of int32 would take an embedding of 256 GiB."""
    (folder / "b.txt").write_text("ab\n")
    vocabulary = {"a": 0, "b": 70_000}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    run("tokenize", folder / "b.txt", "--tokenizer", folder, "-o", folder / "wide")
    assert run("pack", folder / "wide", "-o", folder / "out").exit_code == 0
    _change(folder / "out" / "manifest.json", max_id=2**31 - 1)
    result = run("verify", folder / "out")
    assert result.exit_code == 1
    assert "max_id is 2147483647, the token store has 70000" in result.stdout


def test_inspect_says_which_encoder_ran(folder):
    options = ("--encoder", "tokenizers", "-o", folder / "other")
    assert run("tokenize", folder / "a.txt", *options).exit_code == 0
    assert "encoder            bytes" in run("inspect", folder / "tokens").stdout
    assert "encoder            tokenizers" in run("inspect", folder / "other").stdout
