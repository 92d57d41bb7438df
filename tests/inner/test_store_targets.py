"""A token store whose targets, overlaps and ledger cannot be those of its options is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from shard_reference import (
    Arrays,
    change_manifest,
    change_shard,
    load_shard,
    pretend_to_be_of,
    read_manifest_json,
    safetensors_bytes,
)
from target_corpus import ONE, make_target_store

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.pack import pack
from seqpack_cli.tokens.options import TargetOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.integers.store_targets import check_store_targets
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

OVERLAP = 2
Change = Callable[[Arrays, np.ndarray], object]


def make_store(folder: Path) -> Path:
    return make_target_store(folder, max_length=4, overlap=OVERLAP)


def find(store: Path) -> list[str]:
    return [str(finding) for finding in check_store_targets(open_store(store))]


def forge(store: Path, change: Change) -> None:
    """Change the columns and the ids of the only part in place; mend manifest and checksums."""
    path, ids_path = (store / f"part-00000.{end}" for end in ("columns.safetensors", "bin"))
    loaded, metadata = load_shard(path)
    arrays = {name: array.copy() for name, array in loaded.items()}
    ids = np.fromfile(ids_path, np.uint16)
    change(arrays, ids)
    path.write_bytes(safetensors_bytes(arrays, metadata))
    ids.tofile(ids_path)

    def mend(manifest: dict[str, Any]) -> None:
        for file in manifest["parts"][0]["files"]:
            raw = (store / file["name"]).read_bytes()
            file.update(bytes=len(raw), blake3=blake3(raw).hexdigest())

    change_manifest(store, mend)


def find_later(store: Path) -> tuple[int, int]:
    """Return the first later piece and the token where it begins."""
    opened = open_store(store)
    later = int((np.asarray(opened.part_column(0, "overlap")) > 0).argmax())
    return later, int(opened.lengths[:later].sum())


def test_stores_as_tokenize_makes_them_are_sound(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert find_later(store)[0]
    assert find(store) == []
    assert (
        find(make_target_store(tmp_path, name="several", max_length=4, overlap=3, part_bytes=200))
        == []
    )
    plain = make_target_store(tmp_path, name="whole", max_length=5, part_bytes=300)
    assert find(plain) == []


def test_what_contradicts_the_overlap_is_found(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    later, start = find_later(store)
    part = "structure: part-00000.columns.safetensors of store 1: "

    def forge_one(name: str, place: int, value: int) -> list[str]:
        before: list[int] = []

        def change(arrays: Arrays, ids: np.ndarray) -> None:
            array = ids if name == "ids" else arrays[f"column.{name}"]
            before.append(int(array[place]))
            array[place] = value

        def undo(arrays: Arrays, ids: np.ndarray) -> None:
            (ids if name == "ids" else arrays[f"column.{name}"])[place] = before[0]

        forge(store, change)
        found = find(store)
        forge(store, undo)
        return found

    for value in (0, OVERLAP - 1, -OVERLAP):
        found = forge_one("overlap", later, value)
        assert found[0] == f"{part}sequence {later}: overlap is {value}, expected {OVERLAP}"
    found = forge_one("overlap", later - 1, OVERLAP)
    assert found[0] == f"{part}sequence {later - 1}: overlap is {OVERLAP}, expected 0"
    found = forge_one("ids", start + 1, 65)
    assert found[0].startswith(f"{part}sequence {later}: id 65 at step 1, the piece before ends ")
    found = forge_one("targets", start + 1, 1)
    assert found[0] == (
        f"{part}sequence {later}: the token at step 1 is a target, but repeats one of the "
        "piece before"
    )
    assert find(store) == []


def change_ledger(**changes: int) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        for name, number in changes.items():
            manifest["ledger"][name] += number

    return change


def test_sums_that_are_not_the_ledgers_are_found(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    ledger = read_manifest_json(store)["ledger"]
    numbers = {"num_overlap_tokens": 2, "num_encoded_tokens": -2, "num_target_tokens": -1}
    change_manifest(store, change_ledger(**numbers))
    assert find(store) == [
        f"structure: manifest.json of store 1: {name} is {ledger[name] + numbers[name]}, "
        f"the columns have {ledger[name]}"
        for name in ("num_target_tokens", "num_overlap_tokens")
    ]


def drop_column(manifest: dict[str, Any]) -> None:
    del manifest["columns"][0]


REFUSED: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], object], str]] = {
    "no targets": ({}, drop_column, "no column 'targets', expected one for its options"),
    "no overlap": (
        {"max_length": 4, "overlap": 2},
        lambda manifest: manifest["columns"].pop(1),
        "no column 'overlap', expected one for its options",
    ),
    "other options": (
        {},
        lambda manifest: manifest["options"].update(prompt_field=None, completion_field=None),
        "column 'targets', expected none for its options",
    ),
    "overlap of another type": (
        {},
        lambda manifest: manifest["options"].update(overlap="2"),
        "overlap is '2', expected null, or 1 or more",
    ),
    "more targets than tokens": (
        {},
        lambda manifest: manifest["ledger"].update(num_target_tokens=10**6),
        "num_target_tokens is 1000000, expected at most ",
    ),
    "not all tokens": (
        {"targets": TargetOptions()},
        change_ledger(num_target_tokens=-1),
        "num_target_tokens is ",
    ),
    "overlap without the option": (
        {},
        change_ledger(num_overlap_tokens=1, num_encoded_tokens=-1),
        "num_overlap_tokens is 1, expected 0",
    ),
    "more straddling tokens than tokens": (
        {},
        lambda manifest: manifest["ledger"].update(num_straddling_tokens=10**9),
        "num_straddling_tokens is 1000000000, expected at most ",
    ),
    "straddling tokens without a border": (
        {"targets": TargetOptions()},
        change_ledger(num_straddling_tokens=1),
        "num_straddling_tokens is 1, expected 0",
    ),
    "a completion without a prompt": (
        {},
        lambda manifest: manifest["options"].update(prompt_field=None),
        "prompt_field is None, completion_field is 'completion', expected both or neither",
    ),
    "overlap without a length": (
        {"max_length": 4, "overlap": 2},
        lambda manifest: manifest["options"].update(max_length=None),
        "max_length is None, expected more than overlap, 2",
    ),
    "another order": (
        {"max_length": 4, "overlap": 2},
        lambda manifest: manifest["columns"].reverse(),
        "columns 'overlap', 'targets', expected 'targets', 'overlap' first",
    ),
    "lost tokens": (
        {},
        change_ledger(num_encoded_tokens=1),
        "the tokens in the ledger do not add up",
    ),
}


def verify(path: Path, level: str = "structure") -> Report:
    report = verify_run.verify(path, VerifyOptions(level=level))
    assert isinstance(report, Report)
    return report


def test_verify_refuses_a_store_that_is_there_but_contradicts_itself(tmp_path: Path) -> None:
    """A note that the plan was not compared is only for a store that is missing or another."""
    store = make_store(tmp_path)
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=ONE)
    change_manifest(store, change_ledger(num_encoded_tokens=1))
    assert not verify(tmp_path / "shards").plan.compared
    pretend_to_be_of(tmp_path / "shards", store)
    with pytest.raises(FolderError, match=r"the tokens in the ledger do not add up"):
        verify(tmp_path / "shards")


def test_verify_says_what_targets_must_be(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=ONE)

    def double(arrays: Arrays) -> None:
        targets = arrays["column.targets"]
        targets[int(targets.argmax())] = 2

    change_shard(tmp_path / "shards", double)
    finding = verify(tmp_path / "shards").findings[0]
    assert re.fullmatch(r"column 'targets': 2 at cell \d+, expected 0 or 1", finding.what)


def test_verify_finds_a_store_that_lies_though_its_shards_agree(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    later, start = find_later(store)

    def count_context(arrays: Arrays, ids: np.ndarray) -> None:
        arrays["column.targets"][start : start + OVERLAP] = 1

    forge(store, count_context)
    change_manifest(store, change_ledger(num_target_tokens=OVERLAP))
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=ONE)
    (finding,) = verify(tmp_path / "shards", "roundtrip").findings
    assert finding.what.startswith(f"sequence {later}: the token at step 0 is a target")


def test_sequences_without_a_target_are_those_that_pack_drops(tmp_path: Path) -> None:
    """Forge the store below shards: a sequence loses its targets, another gets one."""
    store = make_target_store(tmp_path, eos=None, bos="<bos>")
    pack(store, tmp_path / "shards", PackOptions(batch_size=3), executor=ONE)
    dropped = read_manifest_json(tmp_path / "shards")["ledger"]["num_dropped_sequences"]
    assert dropped["no_target"] > 0
    assert verify(tmp_path / "shards").findings == []
    opened = open_store(store)
    starts = np.cumsum(opened.lengths) - opened.lengths
    has_target = np.add.reduceat(np.asarray(opened.part_column(0, "targets")), starts) > 0
    kept, lost = int(has_target.argmax()), int((~has_target).argmax())

    def exchange(arrays: Arrays, ids: np.ndarray) -> None:
        targets = arrays["column.targets"]
        targets[starts[lost]] = 1
        targets[starts[kept] : starts[kept] + opened.lengths[kept]] = 0

    forge(store, exchange)
    columns, _ = load_shard(store / "part-00000.columns.safetensors")
    found = np.count_nonzero(columns["column.targets"])
    change_manifest(store, lambda it: it["ledger"].update(num_target_tokens=int(found)))
    pretend_to_be_of(tmp_path / "shards", store)
    assert {finding.level for finding in verify(tmp_path / "shards").findings} == {"structure"}
