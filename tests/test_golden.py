"""Golden files: what every format version wrote is read for ever, and written again byte for byte.

`make_golden.py` says how the files came to be; they are never edited. `expected.json` beside them
holds documents and batches as something other than our reader and writer gave them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from make_golden import (
    COMMANDS,
    DECODERS,
    GOLDEN,
    LINKS,
    MATCHED,
    SHARDS,
    STORES,
    make,
    run_commands,
    write_input,
)
from oracle.stores import read_store

from seqpack_cli import StoreDataset, open_shards, open_store

VERSIONS = sorted(path.name for path in GOLDEN.iterdir())
LATEST = max(VERSIONS, key=lambda name: int(name[1:]))
WRITES_OTHERWISE = (
    "a changed byte is another format: raise format_version and make golden files of it; "
    "other batches from the same options are another plan: raise PLAN_VERSION too"
)
ALL_STORES = [(version, name) for version in VERSIONS for name in STORES]
ALL_SHARDS = [(version, name) for version in VERSIONS for name in SHARDS]
ALL_SIDES = ALL_SHARDS + [(version, name) for version in VERSIONS for name in DECODERS]


@cache
def read_expected(version: str) -> dict[str, Any]:
    """Return what the golden stores and shards of a version must hold."""
    found: dict[str, Any] = json.loads((GOLDEN / version / "expected.json").read_bytes())
    return found


def list_sequences(version: str, *stores: str) -> list[list[int]]:
    return [ids for name in stores for pieces in read_expected(version)[name] for ids in pieces]


def find_stores(name: str) -> list[str]:
    """Return the stores of golden shards, or of a decoder's side."""
    encoder, *decoder = COMMANDS[name.removeprefix("decoder.").split("/")[0]].split("--decoder")
    side = decoder[0] if name in DECODERS else encoder
    return [word for word in side.split() if word in STORES]


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder but run.json, which may differ between equal runs."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("run.json", "expected.json")
    }


def test_golden_files_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    """All runs begin in the version's folder, so that manifests hold the same relative paths."""
    write_input(tmp_path / "input")
    run_commands(tmp_path)
    found, golden = read_files(tmp_path), read_files(GOLDEN / LATEST)
    assert sorted(found) == sorted(golden), WRITES_OTHERWISE
    for name, data in golden.items():
        assert found[name] == data, f"{name}: {WRITES_OTHERWISE}"


def test_input_is_that_of_every_version(tmp_path: Path) -> None:
    write_input(tmp_path / "input")
    for version in VERSIONS:
        assert read_files(tmp_path / "input") == read_files(GOLDEN / version / "input")


def test_existing_version_is_never_made_again(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    with pytest.raises(FileExistsError):
        make(tmp_path / "v1")
    assert list((tmp_path / "v1").iterdir()) == []


def test_golden_files_have_all_layouts_kinds_and_odd_counts() -> None:
    stores = [open_store(GOLDEN / LATEST / name) for name in STORES]
    assert {store.dtype for store in stores} == {"uint16", "int32"}
    assert all(len(store.manifest["parts"]) > 1 for store in stores)
    kinds = {column.kind for store in stores for column in store.columns.values()}
    assert kinds == {"int", "float", "class", "text", "tags", "targets"}
    shards = [open_shards(GOLDEN / LATEST / name) for name in SHARDS]
    assert {each.layout for each in shards} == {"packed", "padded", "varlen", "streams"}
    of_stores = ("empty_documents", "rejected", "special_tokens_in_text", "overlap_tokens")
    of_shards = ("filler_rows", "split_sequences", "repeated_sequences", "padding_cells")
    for opened, names in ((stores, of_stores), (shards, of_shards)):
        ledgers = [each.manifest["ledger"] for each in opened]
        assert all(any(x.get(f"num_{name}", 0) for x in ledgers) for name in names)


# Read for ever


@pytest.mark.parametrize(("version", "name"), ALL_STORES)
def test_golden_store_is_read(version: str, name: str) -> None:
    folder, documents = GOLDEN / version / name, read_expected(version)[name]
    store, page = open_store(folder), read_store(folder)
    store.check_digest()
    expected = list_sequences(version, name)
    assert [ids.tolist() for ids in store] == page.sequences == expected
    assert store.num_documents == len(page.hashes) == len(documents)
    origins = [store.locate(index) for index in range(len(store))]
    assert [(x.source, x.record) for x in origins] == page.places
    assert [(x.document, x.piece) for x in origins] == [
        (document, piece)
        for document, pieces in enumerate(documents)
        for piece in range(len(pieces))
    ]
    dataset = StoreDataset(folder)
    for column, values in page.columns.items():
        for index, value in enumerate(values):
            found = dataset[index].columns[column]
            kind = store.columns[column]
            if kind.class_names is not None or kind.is_per_token:
                found = kind.spell(np.atleast_1d(np.asarray(found)))
                found = found if kind.is_per_token else found[0]
            assert found == value


def test_golden_rejects_are_as_they_were() -> None:
    lines = (GOLDEN / LATEST / "tokens_bytes" / "rejects.jsonl").read_text().splitlines()
    reason = "field 'text' is int, expected a string"
    place = {"source": "input/records.jsonl", "record": 2, "byte": 34}
    assert [json.loads(line) for line in lines] == [{**place, "reason": reason}]


def spell_batches(shards: Any) -> Iterator[dict[str, Any]]:
    """Yield the batches of one side as `expected.json` spells them."""
    for batch in shards:
        starts = getattr(batch, "piece_starts", None)
        starts = np.zeros_like(batch.original_indices) if starts is None else starts
        is_padded = shards.layout == "padded"
        rows = batch.ids if is_padded else batch.rows()
        links = {name: getattr(batch, name, None) for name in (*LINKS, *MATCHED)}
        indices = batch.original_indices.tolist()
        yield {
            "width": batch.ids.shape[1] if is_padded else None,
            "num_filler_rows": batch.num_filler_rows if is_padded else 0,
            **{name: array.tolist() for name, array in links.items() if array is not None},
            "rows": [
                [index, start, row.tolist()]
                for index, start, row in zip(indices, starts.tolist(), rows, strict=True)
            ],
        }


@pytest.mark.parametrize(("version", "name"), ALL_SIDES)
def test_golden_shards_are_read(version: str, name: str) -> None:
    shards = open_shards(GOLDEN / version / name.removeprefix("decoder."))
    side = shards.decoder if name in DECODERS else shards
    assert list(spell_batches(side)) == read_expected(version)[name]


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_verified_and_unpacked(tmp_path: Path, version: str, name: str) -> None:
    folder = GOLDEN / version / name
    report = json.loads(run("verify", folder, "--level", "roundtrip", "--json").stdout)
    assert (report["passed"], report["findings"]) == (True, [])
    assert run("unpack", folder, "-o", tmp_path / "rows.jsonl").exit_code == 0
    sequences = list_sequences(version, *find_stores(name))
    for line in (tmp_path / "rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        repeated = row.get("columns", {}).get("overlap", 0)  # each token is written once
        assert row["ids"] == sequences[row["index"]][repeated:]


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_inspected_without_its_run_json(
    tmp_path: Path, version: str, name: str
) -> None:
    shutil.copytree(GOLDEN / version / name, tmp_path / "copy")
    (tmp_path / "copy" / "run.json").unlink()
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_bytes())
    found = json.loads(run("inspect", tmp_path / "copy", "--json").stdout)
    assert found["ledger"] == manifest["ledger"]
    index = 1 if name in STORES else read_expected(version)[name][0]["rows"][0][0]
    row = json.loads(run("inspect", tmp_path / "copy", "--sequence", index, "--json").stdout)
    stores = [name] if name in STORES else find_stores(name)
    assert row["ids"] == list_sequences(version, *stores)[index]
