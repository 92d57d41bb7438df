"""verify finds every wrong value of a column, at the level and place named for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shard_reference
import torch
from command import run
from shard_reference import Arrays, change_manifest, change_shard, put

from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.tokens.store import open_store
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.integers.shard_roundtrip import Roundtrip, check_shard
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import Report

LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3},
    "padded": {"layout": "padded", "batch_size": 4, "last_batch": "pad"},
    "left": {"layout": "padded", "batch_size": 3, "padding_side": "left", "pad_to_multiple": 4},
    "varlen": {"layout": "varlen", "max_tokens": 14},
    "pieces": {"layout": "varlen", "max_tokens": 5},
}


def make_shards(folder: Path, count: int = 30, **options: Any) -> Path:
    """Make a store with a column of each kind, and pack it."""
    lengths = [2 + (7 * number) % 11 for number in range(count)]
    return shard_reference.make_shards(folder, lengths, has_columns=True, **options)


def verify(path: Path, level: str = "roundtrip", **options: Any) -> Report:
    return verify_run.verify(path, VerifyOptions(level=level, **options))


def find(path: Path) -> list[str]:
    return [str(finding) for finding in verify(path).findings]


@pytest.mark.parametrize("max_batch_tokens", [32_768, 1], ids=["whole", "windows"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_columns_of_good_shards_are_compared(
    tmp_path: Path, name: str, max_batch_tokens: int
) -> None:
    path = make_shards(tmp_path, **LAYOUTS[name])
    report = verify(path, max_batch_tokens=max_batch_tokens)
    assert report.findings == []
    (level,) = (level for level in report.levels if level.level == "roundtrip")
    num_rows = sum(int((batch.lengths > 0).sum()) for batch in open_shards(path))
    assert level.num_column_values == 4 * num_rows + report.num_tokens
    shown = run("verify", path, "--level", "roundtrip").stdout
    line = f"  columns: 5, compared {level.num_column_values:,} values with the token store\n"
    assert line in shown
    shown = run("verify", path, "--level", "structure").stdout
    assert "  columns: 5, values not compared\n" in shown


@pytest.mark.parametrize("name", LAYOUTS)
def test_self_test_catches_every_damage_to_columns(tmp_path: Path, name: str) -> None:
    report = verify(make_shards(tmp_path, **LAYOUTS[name]), self_test=True)
    assert report.findings == []
    caught = {control.name: control.caught for control in report.controls}
    expected = {"swapped column values", "shifted text", "moved tag", "swapped class names"}
    if "padded" in str(LAYOUTS[name]):
        expected.add("tag in padding")
    if "pad" in LAYOUTS[name].values():
        expected.add("value in filler row")
    of_columns = {"value in filler row", "tag in padding", *expected}
    assert {control for control in caught if control in of_columns} == expected
    assert all(value is not False for value in caught.values())
    assert all(caught[control] for control in expected)


def shift_offset(by: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays["column.id.offsets"][1] += by

    return change


def swap_entries(name: str) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        values = arrays[name]
        other = int((values != values[0]).argmax())
        values[[0, other]] = values[[other, 0]]

    return change


def negate_zero(arrays: Arrays) -> None:
    scores = arrays["column.score"]
    scores[scores == 0] = -0.0


DAMAGES: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "swapped labels": (
        swap_entries("column.label"),
        r"roundtrip: shard-00000\.safetensors: batch 0: row 0: column 'label' is '\w+', "
        r"the token store has '\w+'",
    ),
    "a number": (
        put("column.number", 1, 5),
        r"roundtrip: .*: batch 0: row 1: column 'number' is 5, the token store has -\d+",
    ),
    "minus zero": (
        negate_zero,
        r"roundtrip: .*: batch \d: row \d: column 'score' is -0\.0, the token store has 0\.0",
    ),
    "a tag": (
        swap_entries("column.tags"),
        r"roundtrip: .*: batch 0: row 0: column 'tags' is '?\w+'? at step 0, "
        r"the token store has '?\w+'?",
    ),
    "a longer text": (
        shift_offset(2),
        r"roundtrip: .*: batch 0: row 0: column 'id' is 'é\d+é', the token store has 'é\d+'",
    ),
    "half a character": (
        shift_offset(1),
        r"structure: .*: batch 0: row 0: column 'id' is not UTF-8",
    ),
    "class out of range": (
        put("column.label", 2, 3),
        r"structure: .*: batch 0: row 2: column 'label' is 3, expected a class from 0 to 2",
    ),
    "no number": (
        put("column.score", 2, np.nan),
        r"structure: .*: batch 0: row 2: column 'score' is nan, expected a finite number",
    ),
    "tag out of range": (
        put("column.tags", 0, -1),
        r"structure: .*: batch 0: column 'tags': -1 at cell 0, expected a class from 0 to \d",
    ),
    "falling offsets": (
        shift_offset(-9),
        r"structure: shard-00000\.safetensors: column\.id\.offsets does not rise",
    ),
}


@pytest.mark.parametrize(("change", "expected"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found_with_its_place(
    tmp_path: Path, change: Callable[[Arrays], None], expected: str
) -> None:
    path = make_shards(tmp_path, **LAYOUTS["packed"])
    change_shard(path, change)
    found = find(path)
    assert found
    assert re.match(expected, found[0]), found


def test_classes_of_another_order_are_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **LAYOUTS["padded"])

    def swap(manifest: dict[str, Any]) -> None:
        names = manifest["columns"][0]["class_names"]
        names[0], names[2] = names[2], names[0]

    change_manifest(path, swap)
    (finding,) = verify(path, "structure").findings
    assert str(finding) == (
        "structure: manifest.json: class 0 of column 'label' is 'spam', the token store has 'eggs'"
    )
    assert find(path) == [str(finding)]


def forge_filler(arrays: Arrays) -> None:
    """Write a class into the first filler row."""
    arrays["column.label"][int(arrays["original_indices"].argmin())] = 0


def forge_zero(arrays: Arrays) -> None:
    """Write -0.0 into the first filler row."""
    arrays["column.score"][int(arrays["original_indices"].argmin())] = -0.0


def forge_padding(arrays: Arrays) -> None:
    """Write a class into the first cell that is padding."""
    arrays["column.tags"][arrays["data_offsets"][1] - 1] = 0


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (forge_filler, "column 'label' is 0, expected -100 in a filler row"),
        (forge_zero, "column 'score' is -0.0, expected 0 in a filler row"),
        (forge_padding, "is padding and holds 0, expected -100"),
    ],
)
def test_filled_padding_is_found(
    tmp_path: Path, forge: Callable[[Arrays], None], expected: str
) -> None:
    path = make_shards(tmp_path, count=7, **LAYOUTS["padded"])
    change_shard(path, forge)
    assert [found.endswith(expected) for found in find(path)] == [True], find(path)


def test_columns_that_are_not_those_of_the_store_are_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, **LAYOUTS["varlen"])
    change_manifest(path, lambda manifest: manifest["columns"].reverse())
    columns = "'label', 'score', 'number', 'id', 'tags'"
    reverse = "'tags', 'id', 'number', 'score', 'label'"
    assert find(path) == [
        f"structure: manifest.json: columns are {reverse}, the token store has {columns}"
    ]
    change_manifest(path, lambda manifest: manifest["columns"].reverse())
    change_manifest(path, lambda manifest: manifest["columns"].pop(1))
    change_shard(path, lambda arrays: arrays.pop("column.score"))
    assert find(path) == [
        "structure: manifest.json: columns are 'label', 'number', 'id', 'tags', "
        f"the token store has {columns}"
    ]


@pytest.mark.parametrize("max_batch_tokens", [32_768, 1], ids=["whole", "windows"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_wrong_tag_is_found_in_its_row(
    tmp_path: Path, name: str, max_batch_tokens: int
) -> None:
    shards = open_shards(make_shards(tmp_path, count=9, **LAYOUTS[name]))
    shard, store = shards.open_shard(0), open_store(tmp_path / "store")
    length = shards.options.piece_length
    roundtrip = Roundtrip(store, torch.device("cpu"), length, max_batch_tokens)
    tags = shard.tensors["column.tags"]
    for row in np.flatnonzero(shard.tensors["lengths"] > 0).tolist():
        cell = int(shard.arrays.find_cells(np.array([row]))[-1])
        changed = tags.copy()
        changed[cell] = 0 if tags[cell] != 0 else -100
        damaged = shard.with_tensors({**shard.tensors, "column.tags": changed})
        (finding,) = check_shard(damaged, roundtrip, on_advance=lambda _: None)
        assert (finding.batch, finding.row) == shard.arrays.find_batch(row)
        assert finding.what.startswith("column 'tags' is ")
