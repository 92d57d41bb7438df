"""Golden files: what every format version wrote is read for ever, and written again byte for byte.

`make_golden.py` says how the files came to be. `expected.json` beside them holds documents and
batches as something other than our reader and writer gave them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from make_golden import (
    COMMANDS,
    GOLDEN,
    SHARDS,
    STORES,
    expect_documents,
    hash_files,
    make,
    read_batches,
    run_commands,
    write_input,
)
from reference import read_folder, read_store_documents

from seqpack_cli import open_shards, open_store
from seqpack_cli.shards import shard_manifest
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.tokens import store_manifest

MAX_GOLDEN_BYTES = 100_000
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
# Of every file of every version, so that none is edited unseen.
SHA256 = {
    "v2": """
ae4e57d64b5e3dd4202163af0845ecbd35a1b6c9913c022c4fc419bd0e2e8752 expected.json
8f61c260ec4ae9e20f61b51e552a97a8b98176420601553c693a6def3de84fdc filler/manifest.json
ef2c9f6afb46ffda5e56184e6769c60eebdf4fe606bbe7fc927fa060d02a84c8 filler/run.json
05fa9f248b80a1c9d652d2583c0fe3e70d2bb9af28d84848a850f65cedac7f98 filler/shard-00000.safetensors
abbead82d6e05be672647abf17019750b2205aa63275e8e3d536b9e7d1ceaa61 filler/shard-00001.safetensors
2ec12bbb76e90e8806efe0f6ecfc7c8a944115a45bf2c7b15002dd1b8dab9fb9 filler/tokenizer.json
777e90358c6b1a6465eb6d48c22efda3d54f8b4b448e774bbf98a65766b85de0 input/lines.txt
6e4ac23450c2a09f055553bbb1ed62d0cf60bd0e21fee4630d0a34aec38f7503 input/records.jsonl
2ec12bbb76e90e8806efe0f6ecfc7c8a944115a45bf2c7b15002dd1b8dab9fb9 input/words.tokenizer.json
dd7637c9d58f617003b4abca763bd147c0ee85d5409736a6b411c775af0125bf input/words.txt
1f0659b189da6d0b5aa64fe3520ac134e5a761fcb524ca295f7457d3a382db1b packed/manifest.json
1101fa83aa6f653bf9e9868eecd67909d4e651ea57dad4fdbc10cae66a6a90e9 packed/run.json
4199ece76059e6ec6d6093a6396edc48773470b0f70023cae2b2cf91d1e23df7 packed/shard-00000.safetensors
f95a2e4cc5bf165a800ffe7d91ec542ac1eb645f14797046346fde4265b61642 packed/shard-00001.safetensors
514ddde31e80d87903bc478280aa116748410931289d56f3f601893e826e6dde packed/shard-00002.safetensors
3bfd4d770d80d3a2c671cd08964dd1de83f55221889c326703fdc3b7e30fbdc6 packed/shard-00003.safetensors
f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171 packed/tokenizer.json
fbb9224b04104e00b9a38b0a9b9a5f9b7a0db152452b24ed2fdd80b3d4a8c821 padded/manifest.json
d395abc221370779f2549485d2c9ebaeb5dd8c2ce6afe69963d31de840d391ca padded/run.json
00811d06cd11188fab97dbc72873301c1d86167cd7c340a16178a344eb77b755 padded/shard-00000.safetensors
62cf87eeb7b55803cc2c75a089df4d7ed1d6e350940827982a032dbeec44bb22 padded/shard-00001.safetensors
2ec12bbb76e90e8806efe0f6ecfc7c8a944115a45bf2c7b15002dd1b8dab9fb9 padded/tokenizer.json
5056d1d62b2e602a4494308900f5bdca92b8cb1c0820fcf473fd09307ea01ceb padded_left/manifest.json
8bc0b33307448885b524447fd8b60804f8c9628a562b0c11fe4580c494127110 padded_left/run.json
202d50fdf90fcbf97266ab8d58db267aa12dadcae0089b377560142f210f9fe3 padded_left/shard-00000.safetensors
14c67fb35276df675d0364049377333dd78770c0b2194cdfb65901b0e84e224f padded_left/shard-00001.safetensors
f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171 padded_left/tokenizer.json
6e0b27bd00580fa19a9399aacf523f4264ecd30d709a33037e38d64b40b4e0c9 tokens_bytes/manifest.json
b5f9e0882025bed76eea4bea756c4d0733f07800a940f84ae2e2466532b77fb7 tokens_bytes/part-00000.bin
79d3cd5e916a2f0275ebeb3d96ee2dd90c5ed3fbc18db29cdae55086f2f27822 tokens_bytes/part-00000.idx
6fbcd283a0d0aa8c2505d1272597bf484a77b8fc3c92fcc0361a0e10f70d68f6 tokens_bytes/part-00001.bin
3644b1e6e8f5350a60ee03869033c83d751b4e61073870129c5e56c294b989e4 tokens_bytes/part-00001.idx
6416b72572c8b16d4ea8abe50c996aa60fce3faac43f9263793018dbc8cf2615 tokens_bytes/rejects.jsonl
037adb68c5129ac704f5e5687816a85e5f8a694671f060cd6fcac678b36dd9ef tokens_bytes/run.json
0abc3be4ffd8e14be865b661cfa07c697a556d0e9ec6986e113542c58d609ca4 tokens_bytes/special_tokens.jsonl
f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171 tokens_bytes/tokenizer.json
f4e1a3fc0ca7a07a1f6c41a54c2fdabd671a172e6e2fe9933dee06b2b662c3d5 tokens_words/manifest.json
76d16a27f032c471acf873995a638456472704731de759b644c390fd417c779b tokens_words/part-00000.bin
96cf3a6beca3740fb0e90220019d65617837ff9dcafe2637f73a2fd7d62faa78 tokens_words/part-00000.idx
3e2132031ec4d89f8d7b694218b4fd8c14cbba00fdbad1f2802563a701212c35 tokens_words/part-00001.bin
f66e210d535db8a7b5b255b0759367023ea4f7702c38a3a44d94d952f00c1410 tokens_words/part-00001.idx
8041667361fada8a3deccc099155817db42cb4055dbf18eb313419034dd81a84 tokens_words/run.json
2ec12bbb76e90e8806efe0f6ecfc7c8a944115a45bf2c7b15002dd1b8dab9fb9 tokens_words/tokenizer.json
41347be8ecffc541fbc9c73251757b621353d310a67ebc4d25b93488d22ba698 varlen/manifest.json
243bd523c333b94673c9812fd71da261686f4df8f2ce66d6e3bf108ffdec8fbe varlen/run.json
bf77c2fecb71591cedbe7449dde62b73271cdd22b9e35613929255359439077d varlen/shard-00000.safetensors
7a5f9aee961f435f6bb358422620530603c335813dbce638cc32829033f044fe varlen/shard-00001.safetensors
f59667538c5ce3232533ce6fe7b52929ec5a70f8d70d398796337c7e5bd1f171 varlen/tokenizer.json
"""
}
VERSIONS = sorted(SHA256)
# Both formats are written into one folder, which has the larger of their versions.
LATEST = f"v{max(store_manifest.FORMAT_VERSION, shard_manifest.FORMAT_VERSION)}"
ALL_STORES = [(version, name) for version in VERSIONS for name in STORES]
ALL_SHARDS = [(version, name) for version in VERSIONS for name in SHARDS]


def expected(version: str, name: str) -> Any:
    """Give what a golden store or golden shards must hold."""
    return json.loads((GOLDEN / version / "expected.json").read_bytes())[name]


def expected_sequences(version: str, store: str) -> list[list[int]]:
    return [ids for pieces in expected(version, store) for ids in pieces]


def store_of(name: str) -> str:
    return COMMANDS[name].split()[1]


# The files themselves


def test_every_golden_file_is_pinned() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(SHA256)
    for version, table in SHA256.items():
        pinned = dict(reversed(line.split()) for line in table.strip().splitlines())
        found = hash_files(GOLDEN / version)
        assert found == pinned, "a golden file is never edited; another format has another version"


def test_golden_files_are_small() -> None:
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_GOLDEN_BYTES


def test_golden_files_hold_what_they_are_for() -> None:
    """Several parts and shards, both dtypes, all layouts, and every odd kind of document."""
    stores = {name: open_store(GOLDEN / LATEST / name) for name in STORES}
    assert [store.dtype for store in stores.values()] == ["uint16", "int32"]
    assert all(len(store.manifest["parts"]) >= 2 for store in stores.values())
    assert stores["tokens_words"].max_id == 70_000
    documents = expected(LATEST, "tokens_bytes")
    assert [] in documents
    assert max(map(len, documents)) == 3
    assert stores["tokens_bytes"].manifest["ledger"]["num_rejected"] == 1
    assert stores["tokens_bytes"].manifest["ledger"]["num_special_tokens_in_text"] == 1
    shards = {name: open_shards(GOLDEN / LATEST / name) for name in SHARDS}
    assert {opened.layout for opened in shards.values()} == {"packed", "padded", "varlen"}
    assert all(opened.num_shards >= 2 for opened in shards.values())
    assert shards["padded_left"].manifest["padding_side"] == "left"
    assert shards["padded_left"].manifest["bucket_keys"] == [12, 24, 40]
    assert shards["filler"].manifest["ledger"]["num_filler_rows"] == 2
    assert shards["varlen"].manifest["ledger"]["num_split_sequences"] == 3


def test_existing_version_is_never_made_again(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(FileExistsError):
        make(tmp_path / "v1")
    assert list((tmp_path / "v1").iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_expected_documents_follow_from_the_input(version: str) -> None:
    found = expect_documents(GOLDEN / version / "input")
    assert found == {name: expected(version, name) for name in STORES}


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_expected_batches_hold_the_expected_documents(version: str, name: str) -> None:
    """Put the rows of `expected.json` together by hand: padding off, pieces joined."""
    manifest = json.loads((GOLDEN / version / name / "manifest.json").read_bytes())
    pad_id = manifest["pad_id"]
    pieces: dict[tuple[int, int], list[int]] = {}
    for batch in expected(version, name):
        assert sum(index < 0 for index, _, _ in batch["rows"]) == batch["num_filler_rows"]
        for index, start, row in batch["rows"]:
            assert len(row) == (batch["width"] or len(row))
            ids = [id_ for id_ in row if id_ != pad_id]  # no text of ours holds it
            assert (index, start) not in pieces or index < 0
            assert bool(ids) == (index >= 0)
            pieces[index, start] = ids
    sequences = expected_sequences(version, store_of(name))
    joined: list[list[int]] = [[] for _ in sequences]
    for (index, start), ids in sorted(pieces.items()):
        if index >= 0:
            assert start == len(joined[index])
            joined[index] += ids
    assert joined == sequences


# Read for ever


@pytest.mark.parametrize(("version", "name"), ALL_STORES)
def test_golden_store_is_read(version: str, name: str) -> None:
    store = open_store(GOLDEN / version / name)
    store.check_sha256()
    assert [ids.tolist() for ids in store] == expected_sequences(version, name)
    assert store.num_documents == len(expected(version, name))
    assert read_store_documents(GOLDEN / version / name) == expected(version, name)


@pytest.mark.parametrize(("version", "name"), ALL_STORES)
def test_golden_store_leads_back_to_its_documents(version: str, name: str) -> None:
    store = open_store(GOLDEN / version / name)
    origins = [store.locate(index) for index in range(len(store))]
    found = [(origin.document, origin.piece) for origin in origins]
    documents = expected(version, name)
    assert found == [
        (document, piece)
        for document, pieces in enumerate(documents)
        for piece in range(len(pieces))
    ]


def test_golden_rejects_are_as_they_were() -> None:
    lines = (GOLDEN / LATEST / "tokens_bytes" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "source": "input/records.jsonl",
            "record": 2,
            "byte": 34,
            "reason": "field 'text' is int, expected a string",
        }
    ]


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_read(version: str, name: str) -> None:
    found = []
    for batch in open_shards(GOLDEN / version / name):
        assert batch.original_indices is not None
        starts = getattr(batch, "piece_starts", None)
        if starts is None:
            starts = np.zeros_like(batch.original_indices)
        is_padded = isinstance(batch, PaddedBatch)
        rows = batch.ids if is_padded else batch.rows()
        found.append(
            {
                "width": batch.ids.shape[1] if is_padded else None,
                "num_filler_rows": batch.num_filler_rows if is_padded else 0,
                "rows": [
                    [index, start, row.tolist()]
                    for index, start, row in zip(
                        batch.original_indices.tolist(), starts.tolist(), rows, strict=True
                    )
                ],
            }
        )
    assert found == expected(version, name)
    assert read_batches(GOLDEN / version / name) == expected(version, name)


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_inspected(version: str, name: str) -> None:
    folder = GOLDEN / version / name
    manifest = json.loads((folder / "manifest.json").read_bytes())
    result = run("inspect", folder, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["ledger"] == manifest["ledger"]
    assert run("inspect", folder).exit_code == 0
    row = json.loads(run("inspect", folder, "--sequence", 1, "--json").stdout)
    store = name if name in STORES else store_of(name)
    assert row["ids"] == expected_sequences(version, store)[1]


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_read_without_its_run_json(
    tmp_path: Path, version: str, name: str
) -> None:
    shutil.copytree(GOLDEN / version / name, tmp_path / name)
    (tmp_path / name / "run.json").unlink()
    assert run("inspect", tmp_path / name).exit_code == 0


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_verified(version: str, name: str) -> None:
    result = run("verify", GOLDEN / version / name, "--level", "roundtrip", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["findings"] == []


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_unpacked(tmp_path: Path, version: str, name: str) -> None:
    assert run("unpack", GOLDEN / version / name, "-o", tmp_path / "rows.jsonl").exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    sequences = expected_sequences(version, store_of(name))
    assert rows == [{"index": index, "ids": ids} for index, ids in enumerate(sequences)]


# Written again


def test_golden_files_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    """All runs begin in the version's folder, so that manifests hold the same relative paths."""
    shutil.copytree(GOLDEN / LATEST / "input", tmp_path / "input")
    run_commands(tmp_path)
    for name in COMMANDS:
        found, golden = read_folder(tmp_path / name), read_folder(GOLDEN / LATEST / name)
        assert sorted(found) == sorted(golden), f"{name}: {WRITES_OTHERWISE}"
        for file, data in golden.items():
            assert found[file] == data, f"{name}/{file}: {WRITES_OTHERWISE}"


def test_input_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    write_input(tmp_path / "input")
    for version in VERSIONS:
        assert read_folder(tmp_path / "input") == read_folder(GOLDEN / version / "input")
