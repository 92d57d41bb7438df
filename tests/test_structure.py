"""Level `structure`: files, checksums and numbers, without torch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_reference import (
    LENGTHS,
    Arrays,
    change_manifest,
    change_shard,
    flip_byte,
    make_shards,
)

from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.verification.report import Finding, LevelReport
from seqpack_cli.verification.structure import BatchStatistics, check_structure

SHARDS = [f"shard-{number:05d}.safetensors" for number in range(3)]


def check(path: Path) -> tuple[list[str], list[BatchStatistics], LevelReport]:
    report = LevelReport("structure")
    findings, statistics = check_structure(open_shards(path, check_present=False), report)
    assert {finding.level for finding in findings} <= {"structure"}
    return [str(finding) for finding in findings], statistics, report


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("shard_bytes", [1, 1 << 20])
def test_good_shards_have_no_finding(tmp_path: Path, layout: str, shard_bytes: int) -> None:
    path = make_shards(tmp_path, layout=layout, shard_bytes=shard_bytes)
    findings, statistics, report = check(path)
    assert findings == []
    padding = (10, 5, 0) if layout == "padded" else (0, 0, 0)
    assert statistics == [
        BatchStatistics(0, 3, longest=12, shortest=5, num_tokens=26, num_padding_cells=padding[0]),
        BatchStatistics(1, 3, longest=5, shortest=2, num_tokens=10, num_padding_cells=padding[1]),
        BatchStatistics(2, 1, longest=1, shortest=1, num_tokens=1, num_padding_cells=padding[2]),
    ]
    assert (report.num_batches, report.num_tokens) == (3, 37)


def test_dropped_sequences_are_not_missing(tmp_path: Path) -> None:
    path = make_shards(tmp_path, min_length=2, max_length=9, last_batch="drop")
    assert check(path)[0] == []


def test_other_files_in_the_folder_are_nobodys_business(tmp_path: Path) -> None:
    path = make_shards(tmp_path)
    (path / "notes.md").write_text("mine")
    (path / "run.json").unlink()
    assert check(path)[0] == []


FileDamage = Callable[[Path], object]
FILE_DAMAGE: dict[str, tuple[FileDamage, str, str]] = {
    "missing": (lambda shard: shard.unlink(), SHARDS[1], "missing"),
    "longer": (
        lambda shard: shard.write_bytes(shard.read_bytes() + b"\0"),
        SHARDS[1],
        "[0-9,]+ bytes, manifest says [0-9,]+",
    ),
    "cut": (
        lambda shard: shard.write_bytes(shard.read_bytes()[:-1]),
        SHARDS[1],
        "[0-9,]+ bytes, manifest says [0-9,]+",
    ),
    "flipped byte": (lambda shard: flip_byte(shard, -2), SHARDS[1], "sha256 is not the manifest's"),
    "no safetensors": (
        lambda shard: shard.write_bytes(b"\0" * shard.stat().st_size),
        SHARDS[1],
        r"no safetensors file \(.*\)",
    ),
    "a folder": (
        lambda shard: (shard.unlink(), shard.mkdir()),
        SHARDS[1],
        "not a regular file",
    ),
    "one more shard": (
        lambda shard: (shard.parent / "shard-00003.safetensors").write_bytes(b""),
        "shard-00003.safetensors",
        "not in the manifest",
    ),
    "a receipt left over": (
        lambda shard: shard.with_suffix(".json").write_text("{}"),
        "shard-00001.json",
        "not in the manifest",
    ),
    "another tokenizer": (
        lambda shard: flip_byte(shard.parent / "tokenizer.json", 9),
        "tokenizer.json",
        "not the tokenizer that the manifest names",
    ),
}


@pytest.mark.parametrize(("damage", "name", "what"), FILE_DAMAGE.values(), ids=FILE_DAMAGE)
def test_damaged_file_is_named_and_the_other_shards_go_on(
    tmp_path: Path, damage: FileDamage, name: str, what: str
) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    damage(path / SHARDS[1])
    ((finding,), statistics, _) = check(path)
    assert finding.startswith(f"structure: {name}: ")
    assert_matches(what, finding.removeprefix(f"structure: {name}: "))
    expected = [0, 2] if name == SHARDS[1] else [0, 1, 2]
    assert [batch.index for batch in statistics] == expected


def assert_matches(pattern: str, text: str) -> None:
    assert re.fullmatch(pattern, text), text


def set_entry(name: str, place: int, value: int) -> Callable[[Arrays], object]:
    def change(arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


ARRAY_DAMAGE: dict[str, tuple[str, Callable[[Arrays], object], str]] = {
    "moved batch_sizes": (
        "packed",
        set_entry("batch_sizes", 5, 3),
        f"{SHARDS[0]}: batch 0: batch_sizes[5] is 3, but 2 rows are longer than 5",
    ),
    "padding cell": (  # rows of 12 cells, the second has 9 ids
        "padded",
        set_entry("data", 22, 1),
        f"{SHARDS[0]}: batch 0: row 1: cell 10 is padding and holds 1, expected 256",
    ),
    "id above": (
        "packed",
        set_entry("data", 3, 999),
        f"{SHARDS[0]}: batch 0: id 999 at cell 3, expected ids from 0 to 258",
    ),
    "index twice": (
        "packed",
        set_entry("original_indices", 1, 5),
        f"{SHARDS[0]}: sequence 5 stands twice",
    ),
    "index of the other shard": (
        "padded",
        set_entry("original_indices", 1, 3),
        f"{SHARDS[2]}: sequence 3 stands twice",
    ),
    "index beyond the store": (
        "packed",
        set_entry("original_indices", 1, 7),
        f"{SHARDS[0]}: original index 7, the store has 7 sequences",
    ),
    "index negative": (
        "padded",
        set_entry("original_indices", 1, -1),
        f"{SHARDS[0]}: original index -1, the store has 7 sequences",
    ),
}


@pytest.mark.parametrize(("layout", "change", "what"), ARRAY_DAMAGE.values(), ids=ARRAY_DAMAGE)
def test_damaged_array_is_named(
    tmp_path: Path, layout: str, change: Callable[[Arrays], object], what: str
) -> None:
    path = make_shards(tmp_path, layout=layout, shard_bytes=1)
    change_shard(path, change)
    (finding,) = check(path)[0]
    assert finding == f"structure: {what}"


@pytest.mark.parametrize("index", [5, 7, -1, 2**40])
def test_shard_with_a_wrong_index_goes_no_further(tmp_path: Path, index: int) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, set_entry("original_indices", 1, index))
    assert 0 not in {batch.index for batch in check(path)[1]}


@pytest.mark.parametrize("index", [7, -1])
def test_wrong_index_is_found_beside_another_damaged_shard(tmp_path: Path, index: int) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, set_entry("original_indices", 1, index))
    flip_byte(path / SHARDS[1], -2)
    findings, statistics, _ = check(path)
    assert f"structure: {SHARDS[1]}: sha256 is not the manifest's" in findings
    assert f"structure: {SHARDS[0]}: original index {index}, the store has 7 sequences" in findings
    assert [batch.index for batch in statistics] == [2]


def drop_last_row(arrays: Arrays) -> None:
    """Take the last row of one packed batch out, so that everything inside still agrees."""
    last = int(arrays["lengths"][-1])
    rows = len(arrays["lengths"])
    places = [int(arrays["batch_sizes"][:step].sum()) + rows - 1 for step in range(last)]
    arrays["data"] = np.delete(arrays["data"], places)
    arrays["batch_sizes"][:last] -= 1
    for name in ("lengths", "original_indices"):
        arrays[name] = arrays[name][:-1]
    arrays["sequence_offsets"][-1] -= 1
    arrays["data_offsets"][-1] -= last


def test_dropped_row_is_missing(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, drop_last_row, num_sequences=2, num_tokens=21)
    assert check(path)[0][0] == (
        "structure: manifest.json: 1 sequences are missing, the ledger says 0 were dropped"
    )
    ledger: dict[str, Any] = {"num_sequences": 6, "num_tokens": 32}
    change_manifest(path, lambda manifest: manifest["ledger"].update(ledger))
    assert check(path)[0][0] == (
        f"structure: {SHARDS[1]}: original index 6, the store has 6 sequences"
    )


def test_dropped_row_that_the_shard_does_not_count_is_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, drop_last_row, number=1)
    (finding,) = check(path)[0]
    assert finding == f"structure: {SHARDS[1]}: num_sequences is 2, manifest says 3"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"num_batches": 4}, "num_batches is 4, the shards have 3"),
        ({"num_tokens": 38}, "num_tokens is 38, the shards have 37"),
        ({"num_padding_cells": 1}, "num_padding_cells is 1, the shards have 0"),
        (
            {"num_sequences": 8},
            "1 sequences are missing, the ledger says 0 were dropped",
        ),
        (
            {
                "num_sequences": 6,
                "num_dropped_sequences": {"max_length": 1},
                "num_dropped_tokens": {"max_length": 3},
            },
            "0 sequences are missing, the ledger says 1 were dropped",
        ),
    ],
)
def test_ledger_that_does_not_add_up_is_found(
    tmp_path: Path, values: dict[str, Any], what: str
) -> None:
    path = make_shards(tmp_path)
    change_manifest(path, lambda manifest: manifest["ledger"].update(values))
    assert check(path)[0][:1] == [f"structure: manifest.json: {what}"]


@pytest.mark.parametrize("name", ["num_tokens", "num_padding_cells", "longest"])
def test_counts_of_a_shard_are_checked(tmp_path: Path, name: str) -> None:
    path = make_shards(tmp_path, layout="padded")

    def change(manifest: dict[str, Any]) -> None:
        manifest["shards"][0][name] += 1

    change_manifest(path, change)
    assert any(name in finding for finding in check(path)[0])


def test_finding_says_its_place() -> None:
    assert str(Finding("forward", "s", "what")) == "forward: s: what"
    assert str(Finding("forward", "s", "what", 3)) == "forward: s: batch 3: what"
    assert str(Finding("forward", "s", "what", 0, 0)) == "forward: s: batch 0: row 0: what"


def test_finding_of_a_folder_with_a_colon_says_what_was_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path / "a: b")
    (path / SHARDS[0]).unlink()
    assert check(path)[0] == [f"structure: {SHARDS[0]}: missing"]


def test_sha256_of_every_shard_is_the_files(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path, shard_bytes=1))
    for entry in shards.manifest["shards"]:
        raw = (shards.path / entry["name"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(raw).hexdigest()
    assert sum(entry["num_sequences"] for entry in shards.manifest["shards"]) == len(LENGTHS)
