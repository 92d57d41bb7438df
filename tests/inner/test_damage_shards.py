"""Damage done to shards, and the level of verify that must catch it: a table of controls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_reference import (
    Arrays,
    change_manifest,
    change_shard,
    make_shards,
    plan_by_another_version,
    read_manifest_json,
)

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.verify_run import verify

SHARD = "shard-00000.safetensors"
LAST = "shard-00002.safetensors"
Damage = Callable[[Path], object]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make packed and padded shards of three batches; rows 1 to 3 of the first are equally long.

    Batches by length: 9 5 5 5 | 4 3 3 2 | 1; indices 1 2 4 5 | 6 0 7 3 | 8.
    """
    folder = tmp_path_factory.mktemp("good")
    lengths = [3, 9, 5, 2, 5, 5, 4, 3, 1]
    for layout in ("packed", "padded"):
        make_shards(folder / layout, lengths, layout=layout, batch_size=4, shard_bytes=1)
    return folder


@pytest.fixture
def shards(good: Path, tmp_path: Path) -> dict[str, Path]:
    """Return copies that a test may damage."""
    shutil.copytree(good, tmp_path / "copy")
    return {layout: tmp_path / "copy" / layout / "shards" for layout in ("packed", "padded")}


def findings(path: Path, **options: Any) -> list[tuple[str, str, int | None, int | None]]:
    report = verify(path, VerifyOptions(dtype="float64", **options))
    assert report.passed is not bool(report.findings)
    return [(found.level, found.shard, found.batch, found.row) for found in report.findings]


def test_undamaged_copies_pass(shards: dict[str, Path]) -> None:
    for path in shards.values():
        assert findings(path) == []


def change(function: Callable[[Arrays], object], number: int = 0, **values: Any) -> Damage:
    """Damage the arrays of a shard, and update its size and checksum in the manifest."""
    return lambda path: change_shard(path, function, number=number, **values)


def add_to(name: str, place: int, amount: int) -> Callable[[Arrays], object]:
    def function(arrays: Arrays) -> None:
        arrays[name][place] += amount

    return function


def swap(name: str, first: int, second: int) -> Callable[[Arrays], object]:
    def function(arrays: Arrays) -> None:
        arrays[name][[first, second]] = arrays[name][[second, first]]

    return function


def swap_rows_of_one_length(arrays: Arrays) -> None:
    """Swap the ids of rows 1 and 2 of the first packed batch, not their indices."""
    starts = np.cumsum(arrays["batch_sizes"]) - arrays["batch_sizes"]
    for start in starts[:5]:
        arrays["data"][[start + 1, start + 2]] = arrays["data"][[start + 2, start + 1]]


def swap_padded_rows(arrays: Arrays) -> None:
    """Swap rows 1 and 2 of the first rectangle, 9 cells wide."""
    rectangle = arrays["data"][:36].reshape(4, 9)
    rectangle[[1, 2]] = rectangle[[2, 1]]


def move_step(arrays: Arrays) -> None:
    """Move one id of the first batch's steps: 4 4 4 4 4 1 1 1 1."""
    arrays["batch_sizes"][4:6] = [3, 2]


def drop_single_row(arrays: Arrays) -> None:
    """Put the ids of a sequence that is elsewhere into the last shard's only row."""
    arrays["original_indices"][0] = 3


ROUNDTRIP: dict[str, tuple[str, Damage, int, int]] = {
    "flipped id": ("packed", change(add_to("data", 4 * 2 + 3, 1)), 0, 3),
    "flipped id of padded": ("padded", change(add_to("data", 9 + 4, 1), number=0), 0, 1),
    "flipped id of a later shard": ("packed", change(add_to("data", 0, 1), number=2), 2, 0),
    "two ids swapped": ("packed", change(swap("data", 0, 4)), 0, 0),
    "rows swapped": ("packed", change(swap_rows_of_one_length), 0, 1),
    "rows of padded swapped": ("padded", change(swap_padded_rows), 0, 1),
    "indices swapped": ("packed", change(swap("original_indices", 1, 3)), 0, 1),
    "indices of padded swapped": ("padded", change(swap("original_indices", 2, 3)), 0, 2),
    "indices of other lengths swapped": (
        "packed",
        change(swap("original_indices", 0, 3), number=1),
        1,
        0,
    ),
}


@pytest.mark.parametrize(("layout", "damage", "batch", "row"), ROUNDTRIP.values(), ids=ROUNDTRIP)
def test_roundtrip_catches(
    shards: dict[str, Path], layout: str, damage: Damage, batch: int, row: int
) -> None:
    damage(shards[layout])
    plan_by_another_version(shards[layout])  # with our version, structure would find most of it
    shard = f"shard-{batch:05d}.safetensors"
    assert findings(shards[layout]) == [("roundtrip", shard, batch, row)]


STRUCTURE: dict[str, tuple[Any, ...]] = {  # layout, damage, then where it is found
    "moved batch_sizes": ("packed", change(move_step), SHARD, 0),
    "index of another shard": ("packed", change(drop_single_row, number=2), LAST, 2, 0),
    "missing shard": ("packed", lambda path: (path / SHARD).unlink(), SHARD, None),
    "swapped shards": (
        "packed",
        lambda path: (
            (path / SHARD).rename(path / "x"),
            (path / LAST).rename(path / SHARD),
            (path / "x").rename(path / LAST),
        ),
        SHARD,
        None,
    ),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure_catches(shards: dict[str, Path], name: str) -> None:
    layout, damage, shard, *place = STRUCTURE[name]
    batch, row = (*place, None)[:2]
    damage(shards[layout])
    for level in ("structure", "backward"):
        found = findings(shards[layout], level=level)
        assert found[0] == ("structure", shard, batch, row)
        assert {entry[0] for entry in found} == {"structure"}


FILLER = {"layout": "padded", "batch_size": 4, "last_batch": "pad", "padding_side": "left"}
VARLEN = {"layout": "varlen", "max_tokens": 8, "fill": "sequential"}


def swap_pieces(arrays: Arrays) -> None:
    """Swap the starts of the two pieces of sequence 1: 0 and 8."""
    assert arrays["original_indices"][[1, 2]].tolist() == [1, 1]
    arrays["piece_starts"][[1, 2]] = arrays["piece_starts"][[2, 1]]


# The options of pack, the damage, and the level, batch and row of the first finding.
OTHER_LAYOUTS: dict[str, tuple[dict[str, Any], Damage, str, int | None, int | None]] = {
    "id of a left-padded row": (FILLER, change(add_to("data", 9 + 4, 1)), "roundtrip", 0, 1),
    "indices swapped": (FILLER, change(swap("original_indices", 1, 2)), "roundtrip", 0, 1),
    "id of a varlen row": (VARLEN, change(add_to("data", 4, 1)), "roundtrip", 1, 0),
    "id of a later piece": (VARLEN, change(add_to("data", 11, 1)), "roundtrip", 2, 0),
    "piece of another start": (
        VARLEN,
        change(add_to("piece_starts", 2, 1)),
        "structure",
        None,
        None,
    ),
    "pieces swapped": (VARLEN, change(swap_pieces), "structure", None, None),
    "border between sequences moved": (
        VARLEN,
        change(lambda arrays: arrays["lengths"].__setitem__(slice(2, 4), [2, 4])),
        "roundtrip",
        2,
        0,
    ),
}


@pytest.mark.parametrize(
    ("options", "damage", "level", "batch", "row"), OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS
)
def test_damage_of_filler_left_padding_and_varlen_is_caught(
    tmp_path: Path,
    options: dict[str, Any],
    damage: Damage,
    level: str,
    batch: int | None,
    row: int | None,
) -> None:
    path = make_shards(tmp_path, [3, 9, 5, 2, 5, 5, 4, 3, 1], **options)
    assert findings(path, level="roundtrip") == []
    damage(path)
    plan_by_another_version(path)
    found = findings(path, level="roundtrip")
    assert (found[0][0], *found[0][2:]) == (level, batch, row)


def test_each_shard_stops_at_its_first_failing_level(shards: dict[str, Path]) -> None:
    path = shards["packed"]
    change_shard(path, move_step)
    change_shard(path, add_to("data", 0, 1), number=1)
    report = verify(path, VerifyOptions(dtype="float64"))
    assert [(found.level, found.batch) for found in report.findings] == [
        ("structure", 0),
        ("roundtrip", 1),
    ]
    # the third shard passed all levels
    assert [level.num_batches for level in report.levels] == [2, 2, 1, 1]
    assert [level.num_tokens for level in report.levels] == [13, 13, 1, 1]


def test_two_damaged_batches_are_both_named(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [4, 4, 3, 3, 2, 2], batch_size=2)

    def flip_two(arrays: Arrays) -> None:
        arrays["data"][[0, -1]] += 1

    change_shard(path, flip_two)
    assert findings(path) == [("roundtrip", SHARD, 0, 0), ("roundtrip", SHARD, 2, 1)]


VALUES = (None, -1, True, 1.5, "x", [], {}, [None], {"a": None}, 2**63, 2**70)


def places(manifest: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return every field of the manifest that describes the shards."""
    holders = (manifest, manifest["ledger"], manifest["shards"][0])
    return [(holder, name) for holder in holders for name in holder]


@pytest.mark.parametrize("value", ["absent", *VALUES], ids=repr)
def test_damaged_manifest_is_a_finding_or_a_folder_error(
    shards: dict[str, Path], value: object
) -> None:
    path = shards["packed"]
    manifest = read_manifest_json(path)
    escaped = []
    for holder, name in places(manifest):
        kept = dict(holder)
        if value == "absent":
            del holder[name]
        else:
            holder[name] = value
        (path / "manifest.json").write_text(json.dumps(manifest))
        try:
            verify(path, VerifyOptions(level="structure"))
        except FolderError:
            pass
        except Exception as error:  # the subject of this test
            escaped.append((name, repr(error)))
        holder.clear()
        holder.update(kept)
    assert escaped == []


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format": "seqpack.shards"}']
)
def test_file_that_is_not_a_manifest_is_a_folder_error(shards: dict[str, Path], raw: bytes) -> None:
    (shards["packed"] / "manifest.json").write_bytes(raw)
    with pytest.raises(FolderError, match=r"manifest\.json: "):
        open_shards(shards["packed"])


def test_shards_of_one_set_are_not_taken_for_another(shards: dict[str, Path]) -> None:
    shutil.copy(shards["padded"] / SHARD, shards["packed"] / SHARD)
    entry = read_manifest_json(shards["padded"])["shards"][0]
    change_manifest(shards["packed"], lambda manifest: manifest["shards"].__setitem__(0, entry))
    assert findings(shards["packed"])[0] == ("structure", SHARD, None, None)
