"""Manifests of a stranger: whatever they say, a command ends with an error of ours or a finding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from command import run
from shard_reference import change_shard, make_shards

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import open_splits


def _change(path: Path, **values: Any) -> None:
    manifest = json.loads(path.read_bytes())
    for name, value in values.items():
        inner = manifest
        *keys, last = name.split("__")
        for key in keys:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = value
    path.write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    (folder / "a.txt").write_text("ab\nc\n\ndef\n")
    assert run("tokenize", folder / "a.txt", "-o", folder / "tokens").exit_code == 0
    assert run("pack", folder / "tokens", "-o", folder / "shards").exit_code == 0
    return folder


@pytest.fixture
def folder(tmp_path: Path, good: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pad_id": "x"}, "pad_id 'x', expected an id from 0 to 258"),
        ({"pad_id": 259}, "pad_id 259, expected an id from 0 to 258"),
        ({"pad_id": True}, "pad_id True, expected an id from 0 to 258"),
        ({"max_id": 100_000}, "max_id 100,000 does not fit uint16"),
        ({"sources": []}, "the sources have 0 num_documents, the ledger has 4"),
        ({"sources__0__first_document": 5}, "begins at document 5, expected 0"),
        ({"parts__0__ranges__0__source": 7}, "a part has a source that is not listed"),
        ({"ledger__num_tokens": 2**60}, "field 'num_tokens' is 1152921504606846976"),
    ],
)
def test_hostile_manifest_of_a_store_is_refused(
    folder: Path, values: dict[str, Any], said: str
) -> None:
    _change(folder / "tokens" / "manifest.json", **values)
    for arguments in (("inspect",), ("inspect", "--sequence", 0), ("pack", "-o", folder / "new")):
        result = run(arguments[0], folder / "tokens", *arguments[1:])
        assert result.exit_code == 4
        assert said in result.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"shards": []}, "no shards"),
        ({"shards": {}}, "field 'shards' is {}, expected a list"),
        ({"shards": [1]}, "1, expected an object"),
        *(
            (
                {"shards__0__name": name},
                f"shard 0 is named {name!r}, expected shard-00000.safetensors",
            )
            for name in ("../x.safetensors", "/etc/passwd", "a/b", "", "shard-00001.safetensors")
        ),
        ({"shards__0__name": 3}, "field 'name' is 3, expected a string"),
        ({"format_version": 1}, "format version 1, expected 10"),
        ({"format_version": 10.0}, "format version 10.0, expected 10"),
        ({"layout": "varlem"}, "layout 'varlem', expected packed or padded or varlen"),
        ({"dtype": "int64"}, "dtype 'int64', expected uint16 or int32"),
        ({"pad_id": "0"}, "field 'pad_id' is '0', expected a count"),
        ({"plan_version": "1"}, "field 'plan_version' is '1', expected a count"),
        ({"bucket_keys": [1.5]}, "bucket_keys [1.5], expected null"),
        ({"bucket_keys": [True]}, "bucket_keys [True], expected null"),
        ({"max_id": -1}, "field 'max_id' is -1, expected a count"),
        ({"max_id": 2**50}, "max_id 1,125,899,906,842,624 does not fit uint16"),
        ({"eos_id": "2"}, "eos_id '2', expected an id from 0 to 258"),
        ({"pad_id": 70_000}, "pad_id 70000, expected an id from 0 to 258"),
        (
            {"ledger__num_dropped_sequences": {"a": 1}},
            "num_dropped_sequences and num_dropped_tokens list different reasons",
        ),
        (
            {"options__seed": 7},
            "options that pack does not accept: --seed 7 has no effect",
        ),
        ({"options__seed": 1.5}, "option seed is 1.5, expected an integer"),
        ({"options__batch_size": True}, "option batch_size is True, expected an integer or null"),
        ({"options__max_tokens": 2**31}, "max_tokens is 2147483648, expected at most 2147483647"),
        ({"plan_version": 0}, "plan_version 0, expected at least 1"),
        ({"options__shard_bytes": None}, "option shard_bytes is None, expected an integer"),
        ({"options__pad_to_multiple": None}, "option pad_to_multiple is None, expected an integer"),
        ({"options__shard_bytes": 2**60}, "shard_bytes is 1152921504606846976, expected at most"),
        ({"options__num_buckets": 3}, "options that pack does not accept: --num-buckets needs"),
        ({"options__buckets": "auto"}, "option num_buckets is None, pack would record 8"),
        ({"options__where": "x = 1"}, "option where is 'x = 1', expected a list"),
        ({"options__where": [1]}, "options that pack does not accept: where is [1], expected Seq"),
        (
            {"options__where": ["x"]},
            "options that pack does not accept: --where 'x': expected a column",
        ),
        ({"options__more": 1}, "options differ from those of pack in 'more'"),
        ({"options": {}}, "options differ from those of pack in 'align_sequences', 'batch_size'"),
        ({"shards__0__longest": -1}, "field 'longest' is -1, expected a count"),
        ({"padding_side": "up"}, "padding_side 'up', expected right or left"),
        ({"padding_side": ["left"]}, "field 'padding_side' is ['left'], expected a string"),
        ({"bucket_keys": "4"}, "bucket_keys '4', expected null"),
        ({"bucket_keys": [4, None]}, "bucket_keys [4, None], expected null"),
        ({"bucket_keys": [[4]]}, "bucket_keys [[4]], expected null"),
        ({"bucket_keys": {"4": 4}}, "bucket_keys {'4': 4}, expected null"),
        ({"shards__0__num_filler_rows": -1}, "field 'num_filler_rows' is -1, expected a count"),
        ({"shards__0__num_rows": "3"}, "field 'num_rows' is '3', expected a count"),
        ({"ledger__num_split_sequences": None}, "'num_split_sequences' is None, expected a count"),
        ({"ledger__num_filler_rows": 2**60}, "field 'num_filler_rows' is 1152921504606846976"),
        ({"stores": []}, "0 stores, 0 of them different, expected 1 to 4,096"),
        ({"stores": ["x"]}, "'x', expected an object"),
        ({"stores__0__blake3": "a,b"}, "blake3 of a store is 'a,b', expected 64 hexadecimal"),
        ({"stores__0__num_sequences": -1}, "field 'num_sequences' is -1, expected a count"),
        ({"stores__0__num_tokens": True}, "field 'num_tokens' is True, expected a count"),
        ({"stores__0__num_sequences": 2**60}, "field 'num_sequences' is 1152921504606846976"),
        ({"stores__0__passes": 1}, "field 'passes' is 1, expected a string"),
        ({"stores__0__passes": "2"}, "store 1 has 2 passes, its options give it 1"),
        ({"stores__0__passes": "1.0"}, "passes of a store '1.0', expected 1"),
        ({"stores__0__passes": "-1"}, "passes of a store: found -1, expected a decimal number"),
        ({"stores__0__passes": "0." + "1" * 1_000_000}, "expected a decimal number above 0"),
        ({"options__passes": "1=2"}, "store 1 has 1 passes, its options give it 2"),
        ({"options__passes": "2=2"}, "--passes: no store is named '2'"),
        ({"options__passes": "tokens=2"}, "--passes: no store is named 'tokens'"),
        ({"options__share": "1=1", "options__max_passes": "0.5"}, "store 1 has 1 passes"),
        ({"options__share": "2=1", "options__max_passes": "1"}, "no store is named '2'"),
        ({"options__max_passes": "1"}, "options that pack does not accept: --max-passes needs"),
        ({"options__split": "a=0.5,b=0.5"}, "option split_name is None, expected the name of a"),
        ({"options__split_name": "../x"}, "options that pack does not accept: split_name is"),
        ({"options__split": "../x=0.5,b=0.5"}, "expected only letters from a to z"),
        ({"options__drop_column": ["b", "a"]}, "option drop_column is ['b', 'a'], pack would"),
        ({"options__store_column": "a/b"}, "option store_column is 'a/b', which is not a column"),
        ({"ledger__stores": []}, "counts of 0 stores, expected 1"),
        ({"ledger__stores": [{}]}, "no field 'num_sequences'"),
        ({"shards__0__stores": [1]}, "1, expected an object"),
        ({"shards__0__stores__0__num_tokens": "1"}, "field 'num_tokens' is '1', expected a count"),
        ({"ledger__num_repeated_tokens": None}, "field 'num_repeated_tokens' is None, expected"),
    ],
)
def test_hostile_manifest_of_shards_is_refused(
    folder: Path, values: dict[str, Any], said: str
) -> None:
    _change(folder / "shards" / "manifest.json", **values)
    with pytest.raises(FolderError) as caught:
        open_shards(folder / "shards", check_present=False)
    assert str(caught.value).startswith(f"{folder / 'shards' / 'manifest.json'}: ")
    assert said in caught.value.message


@pytest.mark.parametrize("path", ["x" * 5000, "\0", "../../../../nowhere", "../a.txt"])
def test_hostile_path_of_the_store_is_no_more_than_a_missing_store(folder: Path, path: str) -> None:
    _change(folder / "shards" / "manifest.json", stores__0__path=path)
    assert run("inspect", folder / "shards", "--sequence", 0).exit_code == 0
    assert run("verify", folder / "shards").exit_code == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_id": 5000}, "max_id is 5000, the token store has 258"),
        ({"vocab_size": 1}, "vocab_size is 1, the token store has 259"),
    ],
)
def test_shards_that_describe_other_ids_than_their_store_are_a_fault(
    folder: Path, values: dict[str, Any], said: str
) -> None:
    _change(folder / "shards" / "manifest.json", **values)
    result = run("verify", folder / "shards", "--level", "roundtrip")
    assert result.exit_code == 1
    assert f"roundtrip: manifest.json: {said}" in result.stdout


def test_index_beyond_the_store_is_a_fault(folder: Path) -> None:
    """Dropped sequences in the ledger make room for indices that the store does not have."""
    change_shard(folder / "shards", lambda arrays: np.put(arrays["original_indices"], 0, 7))
    _change(
        folder / "shards" / "manifest.json",
        options__drop_longer=3,
        ledger__num_dropped_sequences={"drop_longer": 5},
        ledger__num_dropped_tokens={"drop_longer": 0},
        plan_version=2,
    )
    result = run("verify", folder / "shards")
    assert result.exit_code == 1
    what = "original index 7 is out of range: the token store has 3 sequences"
    assert f"batch 0: row 0: {what}" in result.stdout


def test_ids_that_no_memory_could_embed_are_a_fault_before_a_model_is_built(folder: Path) -> None:
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


VARLEN = {"layout": "varlen", "max_tokens": 8, "fill": "sequential"}
LEFT = {"layout": "padded", "last_batch": "pad", "padding_side": "left", "buckets": (4, 8, 12)}
PADDED_TO: dict[str, dict[str, int]] = {"packed": {}, "padded": {"pad_to_multiple": 4}}


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize(
    "keys",
    [None, [], [-4, 3], [0], [2**70], [4, 8, 12, 12], [12, 8, 4], [1, 2, 3, 4]],
    ids=str,
)
def test_bucket_keys_that_the_options_do_not_give_are_refused(
    tmp_path: Path, layout: str, keys: list[int] | None
) -> None:
    path = make_shards(tmp_path, layout=layout, buckets="auto", num_buckets=3, **PADDED_TO[layout])
    _change(path / "manifest.json", bucket_keys=keys)
    with pytest.raises(FolderError):
        open_shards(path, check_present=False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "drop_shorter"),
        ({}, "drop_longer"),
        ({"drop_longer": 12}, "overflow"),
        ({"drop_longer": 12}, "last_batch"),
        ({}, "overflow"),
        ({"max_tokens": 30}, "overflow"),
        ({"layout": "padded", "last_batch": "pad"}, "last_batch"),
        ({**VARLEN, "drop_longer": 12}, "overflow"),
        ({"drop_longer": 12}, "no reason"),
    ],
)
def test_sequences_dropped_for_no_reason_of_the_options_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    path = make_shards(tmp_path, **options)
    for name in ("num_dropped_sequences", "num_dropped_tokens"):
        _change(path / "manifest.json", **{f"ledger__{name}": {reason: 4}})
    result = run("verify", path, "--level", "structure")
    assert result.exit_code == 4
    assert f"4 sequences dropped by '{reason}', which its options never do" in result.stderr


@pytest.mark.parametrize("kind", [{}, LEFT, VARLEN], ids=["packed", "left", "varlen"])
def test_options_of_a_stranger_are_refused(tmp_path: Path, kind: dict[str, Any]) -> None:
    path = make_shards(tmp_path, **kind)
    options = json.loads((path / "manifest.json").read_bytes())["options"]
    for value in ("x", -1, 1.5, [], {}, 2**70):
        for name in options.keys() - ({"where", "drop_column"} if value == [] else ()):
            _change(path / "manifest.json", options={**options, name: value})
            with pytest.raises(FolderError):
                open_shards(path, check_present=False)


def test_store_that_stands_twice_is_refused(folder: Path) -> None:
    stores = json.loads((folder / "shards" / "manifest.json").read_bytes())["stores"]
    _change(folder / "shards" / "manifest.json", stores=stores * 2)
    with pytest.raises(FolderError, match="2 stores, 1 of them different, expected 1 to 4,096"):
        open_shards(folder / "shards")


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store and its splits."""
    folder = tmp_path_factory.mktemp("splits")
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text("".join(f"{name}{line}\n" for line in range(60)))
        assert run("tokenize", folder / f"{name}.txt", "-o", folder / name).exit_code == 0
        result = run("pack", folder / name, "--split", "x=0.5,y=0.5", "-o", folder / f"{name}-out")
        assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"splits": []}, "splits [], its options have x=0.5,y=0.5"),
        ({"splits": [1, 2]}, "1, expected an object"),
        ({"splits__0__name": "../b-out/x"}, "splits [('../b-out/x', '0.5'), ('y', '0.5')], its"),
        ({"splits__0__name": "y"}, "its options have x=0.5,y=0.5"),
        ({"splits__0__share": 0.5}, "its options have x=0.5,y=0.5"),
        ({"splits__0__num_tokens": -1}, "field 'num_tokens' is -1, expected a count"),
        ({"splits__0__num_sequences": 2**53}, "num_sequences, the stores have 60"),
        ({"splits__0__blake3": "0" * 64}, "not the shards that"),
        ({"stores": [1]}, "1, expected an object"),
        ({"stores__0__num_tokens": "60"}, "field 'num_tokens' is '60', expected a count"),
        ({"split_seed": 1}, "split_seed and split_by are (1, None), its options have (0, None)"),
        ({"split_by": ["x"]}, "split_seed and split_by are (0, ['x'])"),
        ({"stores": []}, "0 stores, 0 of them different"),
        ({"stores__0__blake3": "f" * 64}, "not the shards that"),
        ({"options": {}}, "no option 'layout'"),
        ({"options__split": None}, "its options are not those of pack --split"),
        ({"options__split_name": "x"}, "its options are not those of pack --split"),
        ({"options__layout": []}, "options that pack does not accept: layout is"),
        ({"options__batch_size": 2}, "not the shards that"),
    ],
)
def test_hostile_manifest_of_splits_is_refused(
    splits: Path, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    shutil.copytree(splits, tmp_path / "copy")
    _change(tmp_path / "copy" / "a-out" / "manifest.json", **values)
    with pytest.raises(FolderError) as caught:
        open_splits(tmp_path / "copy" / "a-out")
    assert said in caught.value.message


def test_split_of_other_stores_or_behind_a_link_is_refused(splits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy" / "a-out"
    shutil.copytree(splits, tmp_path / "copy")
    (folder / "x").rename(tmp_path / "x")
    (folder / "x").symlink_to(tmp_path / "x")
    with pytest.raises(FolderError, match="x: a link, expected the folder of a split"):
        open_splits(folder)
    (folder / "x").unlink()
    shutil.copytree(splits / "b-out" / "x", folder / "x")
    digest = blake3((folder / "x" / "manifest.json").read_bytes()).hexdigest()
    _change(folder / "manifest.json", splits__0__blake3=digest)
    with pytest.raises(FolderError, match="x: not the shards that"):
        open_splits(folder)
