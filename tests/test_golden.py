"""Golden files: what every format version wrote is read for ever, and written again byte for byte.

`make_golden.py` says how the files came to be; they are never edited. What they hold is what the
page's reader in `oracle/` finds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from batch_checks import check_batch
from command import run
from make_golden import GOLDEN, SHARDS, STORES, make, run_commands, write_input
from oracle.batches import read_batches
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


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder but run.json, which may differ between equal runs."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
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
    folder = GOLDEN / version / name
    store, page = open_store(folder), read_store(folder)
    store.check_digest()
    assert [ids.tolist() for ids in store] == page.sequences
    assert store.num_documents == len(page.hashes)
    origins = [store.locate(index) for index in range(len(store))]
    assert [(x.source, x.record) for x in origins] == page.places
    assert [x.document for x in origins] == page.documents
    dataset = StoreDataset(folder)
    for column, values in page.columns.items():
        kind = store.columns[column]
        for index, value in enumerate(values):
            found = dataset[index].columns[column]
            if kind.class_names is not None or kind.is_per_token:
                found = kind.spell(np.atleast_1d(np.asarray(found)))
                found = found if kind.is_per_token else found[0]
            assert found == value


def test_golden_rejects_are_as_they_were() -> None:
    lines = (GOLDEN / LATEST / "tokens_bytes" / "rejects.jsonl").read_text().splitlines()
    reason = "field 'text' is int, expected a string"
    place = {"source": "input/records.jsonl", "record": 2, "byte": 34}
    assert [json.loads(line) for line in lines] == [{**place, "reason": reason}]


@pytest.mark.parametrize(("version", "name"), ALL_SHARDS)
def test_golden_shards_are_read_and_verified(version: str, name: str) -> None:
    folder = GOLDEN / version / name
    whole = open_shards(folder)
    sides = {"": whole} if whole.decoder is None else {"": whole, "decoder.": whole.decoder}
    for prefix, shards in sides.items():
        for batch, page in zip(shards, read_batches(folder, prefix), strict=True):
            assert page is not None and page.is_sound()
            check_batch(shards, batch, page)
    report = json.loads(run("verify", folder, "--level", "roundtrip", "--json").stdout)
    assert (report["passed"], report["findings"]) == (True, [])


@pytest.mark.parametrize(("version", "name"), ALL_STORES + ALL_SHARDS)
def test_golden_folder_is_inspected_without_its_run_json(
    tmp_path: Path, version: str, name: str
) -> None:
    shutil.copytree(GOLDEN / version / name, tmp_path / "copy")
    (tmp_path / "copy" / "run.json").unlink()
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_bytes())
    found = json.loads(run("inspect", tmp_path / "copy", "--json").stdout)
    assert found["ledger"] == manifest["ledger"]
