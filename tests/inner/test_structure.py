"""Level `structure`: files, checksums and numbers, without torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batch_tables import BatchNumbers, list_batches
from blake3 import blake3
from shard_reference import (
    LENGTHS,
    Arrays,
    change_manifest,
    change_shard,
    flip_byte,
    make_shards,
    mend_manifest,
    put,
    read_manifest_json,
)

from seqpack_cli.batching.plan import BatchTable
from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.verification.findings import Finding
from seqpack_cli.verification.integers.coverage import Coverage
from seqpack_cli.verification.integers.structure import check_structure
from seqpack_cli.verification.integers.totals import check_totals
from seqpack_cli.verification.report import LevelReport

SHARDS = [f"shard-{number:05d}.safetensors" for number in range(3)]


def check(path: Path) -> tuple[list[str], list[BatchNumbers], LevelReport]:
    report = LevelReport("structure")
    findings, statistics, _ = check_structure(open_shards(path, check_present=False), report)
    assert {finding.level for finding in findings} <= {"structure"}
    return [str(finding) for finding in findings], list_batches(statistics), report


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("shard_bytes", [1, 1 << 20])
def test_good_shards_have_no_finding(tmp_path: Path, layout: str, shard_bytes: int) -> None:
    path = make_shards(tmp_path, layout=layout, shard_bytes=shard_bytes)
    findings, statistics, report = check(path)
    assert findings == []
    padding = (10, 5, 0) if layout == "padded" else (0, 0, 0)
    assert statistics == [
        BatchNumbers(0, 3, 12, 5, 26, padding[0], num_sequences=3),
        BatchNumbers(1, 3, 5, 2, 10, padding[1], num_sequences=3),
        BatchNumbers(2, 1, 1, 1, 1, padding[2], num_sequences=1),
    ]
    assert (report.num_batches, report.num_tokens) == (3, 37)


def test_dropped_sequences_are_not_missing(tmp_path: Path) -> None:
    path = make_shards(tmp_path, drop_shorter=2, drop_longer=9, last_batch="drop")
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
    "flipped byte": (
        lambda shard: flip_byte(shard, -2),
        SHARDS[1],
        "blake3 differs from the manifest's",
    ),
    "no safetensors": (
        lambda shard: shard.write_bytes(b"\0" * shard.stat().st_size),
        SHARDS[1],
        r"not a safetensors file \(.*\)",
    ),
    "a folder": (
        lambda shard: (shard.unlink(), shard.mkdir()),
        SHARDS[1],
        "not a regular file",
    ),
    "a link": (
        lambda shard: shard.symlink_to(shard.rename(shard.parent.parent / "elsewhere")),
        SHARDS[1],
        "not a regular file",
    ),
    "the shard before": (
        lambda shard: shard.write_bytes(shard.with_name(SHARDS[0]).read_bytes()),
        SHARDS[1],
        "[0-9,]+ bytes, manifest says [0-9,]+",
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
        "blake3 differs from the manifest's",
    ),
}


SEEN_WHEN_OPENED = {"missing", "longer", "cut", "a folder", "a link", "the shard before"}


@pytest.mark.parametrize("kind", FILE_DAMAGE)
def test_damaged_file_is_named_and_the_other_shards_go_on(tmp_path: Path, kind: str) -> None:
    damage, name, what = FILE_DAMAGE[kind]
    path = make_shards(tmp_path, shard_bytes=1)
    damage(path / SHARDS[1])
    if kind in SEEN_WHEN_OPENED:
        with pytest.raises(FolderError, match=rf"^{path / name}: {what}$"):
            open_shards(path)
    else:
        open_shards(path)
    ((finding,), statistics, _) = check(path)
    assert finding.startswith(f"structure: {name}: ")
    assert_matches(what, finding.removeprefix(f"structure: {name}: "))
    expected = [0, 2] if name == SHARDS[1] else [0, 1, 2]
    assert [batch.index for batch in statistics] == expected


def assert_matches(pattern: str, text: str) -> None:
    assert re.fullmatch(pattern, text), text


ARRAY_DAMAGE: dict[str, tuple[str, Callable[[Arrays], object], str]] = {
    "index twice": (
        "packed",
        put("original_indices", 1, 5),
        f"{SHARDS[0]}: batch 0: row 1: sequence 5 appears more than once",
    ),
    "index of the other shard": (
        "padded",
        put("original_indices", 1, 3),
        f"{SHARDS[2]}: batch 2: row 0: sequence 3 appears more than once",
    ),
    "index beyond the store": (
        "packed",
        put("original_indices", 1, 7),
        f"{SHARDS[0]}: batch 0: row 1: original index 7 is out of range: "
        "the token store has 7 sequences",
    ),
    "index negative": (
        "padded",
        put("original_indices", 1, -1),
        f"{SHARDS[0]}: batch 0: row 1: original index -1 is out of range: "
        "the token store has 7 sequences",
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
    change_shard(path, put("original_indices", 1, index))
    assert 0 not in {batch.index for batch in check(path)[1]}


@pytest.mark.parametrize("index", [7, -1])
def test_wrong_index_is_found_beside_another_damaged_shard(tmp_path: Path, index: int) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, put("original_indices", 1, index))
    flip_byte(path / SHARDS[1], -2)
    findings, statistics, _ = check(path)
    assert f"structure: {SHARDS[1]}: blake3 differs from the manifest's" in findings
    place = f"structure: {SHARDS[0]}: batch 0: row 1"
    assert (
        f"{place}: original index {index} is out of range: the token store has 7 sequences"
        in findings
    )
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
    of_store = [{"num_sequences": 2, "num_tokens": 21}]
    counts = {"num_rows": 2, "num_sequences": 2, "num_tokens": 21, "stores": of_store}
    counts["num_target_tokens"] = 21
    change_shard(path, drop_last_row, **counts)
    assert check(path)[0][0] == (
        "structure: manifest.json: 1 sequences are missing, the ledger says 0 were dropped"
    )
    ledger: dict[str, Any] = {"num_sequences": 6, "num_tokens": 32}
    change_manifest(path, lambda manifest: manifest["ledger"].update(ledger))
    change_manifest(path, lambda manifest: manifest["stores"][0].update(ledger))
    assert check(path)[0][0] == (
        f"structure: {SHARDS[1]}: batch 1: row 2: original index 6 is out of range: "
        "the token store has 6 sequences"
    )


def test_dropped_row_that_the_shard_does_not_count_is_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)
    change_shard(path, drop_last_row, number=1)
    (finding,) = check(path)[0]
    assert finding == f"structure: {SHARDS[1]}: num_rows is 2, manifest says 3"
    mend_manifest(path, 1, num_rows=2)
    assert check(path)[0] == [
        f"structure: {SHARDS[1]}: num_sequences is 3, the shard has 2",
        f"structure: {SHARDS[1]}: num_tokens is 10, the shard has 8",
    ]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"num_batches": 4}, "num_batches is 4, the shards have 3"),
        ({"num_tokens": 38}, "38 tokens, dropped ones included, the stores have 37"),
        ({"num_padding_cells": 1}, "num_padding_cells is 1, the shards have 0"),
        (
            {"num_sequences": 8},
            "8 sequences, dropped ones included, the stores have 7",
        ),
        (
            {
                "num_sequences": 6,
                "num_dropped_sequences": {"drop_longer": 1},
                "num_dropped_tokens": {"drop_longer": 3},
            },
            "0 sequences are missing, the ledger says 1 were dropped",
        ),
        (
            {"num_repeated_tokens": 2},
            "37 tokens, dropped ones included, the stores have 37 and 2 are repeated",
        ),
        (
            {"stores": [{"num_sequences": 6, "num_tokens": 37}]},
            "num_sequences of store 1 is 6, the shards have 7",
        ),
    ],
)
def test_ledger_that_does_not_add_up_is_found(
    tmp_path: Path, values: dict[str, Any], what: str
) -> None:
    path = make_shards(tmp_path, drop_longer=12)
    change_manifest(path, lambda manifest: manifest["ledger"].update(values))
    assert check(path)[0][:1] == [f"structure: manifest.json: {what}"]


def test_two_visits_in_one_batch_are_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, [5, 5, 5, 5], batch_size=2, passes="store=2")
    assert check(path)[0] == []

    def gather(arrays: Arrays) -> None:
        arrays["original_indices"].sort()

    change_shard(path, gather)
    what = "sequence 0 appears more than once in the batch"
    assert check(path)[0] == [f"structure: {SHARDS[0]}: batch 0: row 1: {what}"]


def test_no_batches_are_no_proof(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path))
    coverage = Coverage.of_stores(shards.manifest["stores"])
    found = [finding.what for finding in check_totals(shards, coverage, BatchTable.join([]))]
    assert "no batches, expected at least one" in found
    assert "7 sequences are missing, the ledger says 0 were dropped" in found


def test_counts_of_a_store_in_a_shard_are_checked(tmp_path: Path) -> None:
    path = make_shards(tmp_path, shard_bytes=1)

    def change(manifest: dict[str, Any]) -> None:
        manifest["shards"][1]["stores"][0]["num_tokens"] += 1

    change_manifest(path, change)
    place = f"structure: {SHARDS[1]}"
    assert check(path)[0] == [f"{place}: num_tokens of store 1 is 11, the shard has 10"]


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


def test_checksum_of_every_shard_is_the_files(tmp_path: Path) -> None:
    shards = open_shards(make_shards(tmp_path, shard_bytes=1))
    for entry in shards.manifest["shards"]:
        raw = (shards.path / entry["name"]).read_bytes()
        assert entry["blake3"] == blake3(raw).hexdigest()
    assert sum(entry["num_sequences"] for entry in shards.manifest["shards"]) == len(LENGTHS)


def make_rows(folder: Path, max_tokens: int = 8, **options: Any) -> Path:
    """Make varlen shards of one row each: in the order of the input, so that pieces are known."""
    options = {"fill": "sequential", "shard_bytes": 1, **options}
    return make_shards(folder, layout="varlen", batch_size=None, max_tokens=max_tokens, **options)


def test_good_varlen_shards_have_no_finding(tmp_path: Path) -> None:
    findings, statistics, report = check(make_rows(tmp_path))
    assert findings == []
    # 3 | 8 of 9 | 1 of 9, 5, 1 | 5 | 8 of 12 | 4 of 12, 2
    assert statistics == [
        BatchNumbers(0, 1, 3, 3, 3, 0, num_sequences=1),
        BatchNumbers(1, 1, 8, 8, 8, 0, num_sequences=1),
        BatchNumbers(2, 3, 5, 1, 7, 0, num_sequences=2, num_split_sequences=1),
        BatchNumbers(3, 1, 5, 5, 5, 0, num_sequences=1),
        BatchNumbers(4, 1, 8, 8, 8, 0, num_sequences=1),
        BatchNumbers(5, 2, 4, 2, 6, 0, num_sequences=1, num_split_sequences=1),
    ]
    assert (report.num_batches, report.num_tokens) == (6, 37)


@pytest.mark.parametrize("side", ["left", "right"])
def test_good_shards_with_filler_have_no_finding(tmp_path: Path, side: str) -> None:
    path = make_shards(
        tmp_path, layout="padded", last_batch="pad", padding_side=side, pad_to_multiple=4
    )
    findings, statistics, _ = check(path)
    assert findings == []
    assert statistics == [
        BatchNumbers(0, 3, 12, 5, 26, 10, num_sequences=3),
        BatchNumbers(1, 3, 5, 2, 10, 14, num_sequences=3),
        BatchNumbers(2, 3, 1, 1, 1, 11, num_filler_rows=2, num_sequences=1),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": (4, 8, 16)},
        {"buckets": (4, 8, 16), "layout": "padded", "last_batch": "pad"},
        {"buckets": "auto", "num_buckets": 2, "layout": "padded", "pad_to_multiple": 8},
        {"buckets": "auto", "layout": "padded", "batch_size": None, "max_tokens": 24},
        {"buckets": (4, 9), "overflow": "drop", "layout": "padded", "padding_side": "left"},
        {"shuffle": True, "seed": 3},
        {"shuffle": True, "window": 4, "layout": "padded"},
        {"order": "none", "batch_size": None, "max_tokens": 14},
        {"layout": "varlen", "batch_size": None, "max_tokens": 3, "seed": 2},
        {"layout": "varlen", "batch_size": None, "max_tokens": 9, "overflow": "drop"},
    ],
    ids=str,
)
def test_good_shards_of_other_options_have_no_finding(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    assert check(make_shards(tmp_path, **options))[0] == []


def drop_row(arrays: Arrays, row: int) -> None:
    """Take a row out of a varlen batch, so that everything inside still agrees."""
    batch = int(np.searchsorted(arrays["sequence_offsets"], row, "right")) - 1
    start, length = int(arrays["lengths"][:row].sum()), int(arrays["lengths"][row])
    arrays["data"] = np.delete(arrays["data"], slice(start, start + length))
    for name in ("lengths", "original_indices", "piece_starts"):
        arrays[name] = np.delete(arrays[name], row)
    arrays["sequence_offsets"][batch + 1 :] -= 1
    arrays["data_offsets"][batch + 1 :] -= length


def join_rows(arrays: Arrays) -> None:
    """Make one batch of the first two of a varlen shard."""
    for name in ("sequence_offsets", "data_offsets"):
        arrays[name] = np.delete(arrays[name], 1)


VARLEN_DAMAGE: dict[str, tuple[int, Callable[[Arrays], object], str]] = {
    "a later piece is said to be the first": (
        2,
        put("piece_starts", 0, 0),
        f"{SHARDS[2]}: batch 2: row 0: sequence 1 appears more than once",
    ),
    "a later piece begins too early": (
        2,
        put("piece_starts", 0, 7),
        "manifest.json: a piece of sequence 1 begins at token 7, expected one at 8",
    ),
    "a later piece begins before the sequence": (
        2,
        put("piece_starts", 0, -8),
        "manifest.json: a piece of sequence 1 begins at token -8, expected one at 0",
    ),
    "a piece of another sequence": (
        2,
        put("original_indices", 0, 0),
        "manifest.json: a piece of sequence 0 begins at token 8, expected one at 3",
    ),
    "a first piece is said to be a later one": (
        1,
        put("piece_starts", 0, 1),
        f"{SHARDS[1]}: num_sequences is 1, the shard has 0",
    ),
}


@pytest.mark.parametrize(("number", "change", "what"), VARLEN_DAMAGE.values(), ids=VARLEN_DAMAGE)
def test_damaged_varlen_array_is_named(
    tmp_path: Path, number: int, change: Callable[[Arrays], object], what: str
) -> None:
    path = make_rows(tmp_path)
    change_shard(path, change, number=number)
    assert check(path)[0][-1] == f"structure: {what}"


def test_missing_piece_is_found(tmp_path: Path) -> None:
    path = make_rows(tmp_path, 3)  # 9 = 3 + 3 + 3 in the shards 1 to 3
    (path / SHARDS[2]).unlink()
    assert check(path)[0] == [f"structure: {SHARDS[2]}: missing"]


@pytest.mark.parametrize("mended", range(3))
def test_dropped_piece_is_found(tmp_path: Path, mended: int) -> None:
    path = make_rows(tmp_path, 4, shard_bytes=1 << 20)  # 12 = 4 + 4 + 4
    tensors = open_shards(path).open_shard(0).tensors
    is_middle = (tensors["original_indices"] == 5) & (tensors["piece_starts"] == 4)
    row = int(np.flatnonzero(is_middle)[0])
    change_shard(path, lambda arrays: drop_batch(arrays, row))
    ledger = read_manifest_json(path)["ledger"]
    values = {
        "num_batches": ledger["num_batches"] - 1,
        "num_rows": ledger["num_rows"] - 1,
        "num_tokens": 33,
        "num_target_tokens": 33,
        "stores": [{"num_sequences": 7, "num_tokens": 33}],
    }
    piece = "manifest.json: a piece of sequence 5 begins at token 8, expected one at 4"
    if mended > 0:
        mend_manifest(path, **values)
    if mended > 1:
        change_manifest(path, lambda manifest: manifest["ledger"].update(values))
    found = check(path)[0]
    if mended == 0:
        assert found[0].startswith(f"structure: {SHARDS[0]}: num_batches is ")
    else:
        assert found[0] == f"structure: {piece}"
        assert len(found) == 1


def drop_batch(arrays: Arrays, row: int) -> None:
    """Take out a varlen batch of this one row."""
    batch = int(np.searchsorted(arrays["sequence_offsets"], row, "right")) - 1
    assert arrays["sequence_offsets"][batch + 1] - arrays["sequence_offsets"][batch] == 1
    drop_row(arrays, row)
    for name in ("sequence_offsets", "data_offsets"):
        arrays[name] = np.delete(arrays[name], batch)


BROKEN_PROMISES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[int, str]]] = {
    "more rows than batch_size": (
        {},
        {"batch_size": 2},
        {0: "3 rows, the options allow at most 2", 1: "3 rows, the options allow at most 2"},
    ),
    "more rows than batch_size with filler": (
        {"layout": "padded", "last_batch": "pad"},
        {"batch_size": 2},
        dict.fromkeys(range(3), "3 rows, the options allow at most 2"),
    ),
    "more tokens than max_tokens": (  # 12 | 9 5 5 | 3 2 1
        {"batch_size": None, "max_tokens": 20},
        {"max_tokens": 18},
        {1: "19 cells, the options allow at most 18"},
    ),
    "more cells than max_tokens": (  # 12 | 9 5 | 5 3 2 1
        {"layout": "padded", "batch_size": None, "max_tokens": 20},
        {"max_tokens": 19},
        {2: "20 cells, the options allow at most 19"},
    ),
    "a row of varlen that is longer": (
        {"layout": "varlen", "batch_size": None, "max_tokens": 12, "fill": "sequential"},
        {"max_tokens": 11},  # 3 9 | 5 1 5 | 12 | 2
        {
            0: "12 cells, the options allow at most 11",
            2: "12 cells, the options allow at most 11",
        },
    ),
    "a width that is no bucket key": (  # 12 9 | 5 5 3 | 2 1
        {"layout": "padded", "buckets": "auto", "num_buckets": 2},
        {"bucket_keys": [8, 12]},
        {
            1: "width 5, expected 8 for a longest row of 5 tokens",
            2: "width 5, expected 8 for a longest row of 2 tokens",
        },
    ),
    "a row longer than every bucket": (
        {"layout": "padded", "buckets": "auto", "num_buckets": 2},
        {"bucket_keys": [5]},
        {0: "a row of 12 tokens, the largest bucket is 5"},
    ),
    "rows of two buckets": (  # 12 9 | 5 5 3 | 2 1
        {"buckets": "auto", "num_buckets": 2},
        {"bucket_keys": [10, 12]},
        {0: "rows of 9 and 12 tokens belong to different buckets"},
    ),
    "a width that is no multiple": (  # 12 9 5 | 8 cells for 5 3 2 | 4 for 1
        {"layout": "padded", "pad_to_multiple": 4},
        {"pad_to_multiple": 3},
        {
            1: "width 8, expected 6 for a longest row of 5 tokens",
            2: "width 4, expected 3 for a longest row of 1 tokens",
        },
    ),
    "a width beyond the next multiple": (
        {"layout": "padded", "pad_to_multiple": 4},
        {"pad_to_multiple": 1},
        {
            1: "width 8, expected 5 for a longest row of 5 tokens",
            2: "width 4, expected 1 for a longest row of 1 tokens",
        },
    ),
    "fewer rows than batches are filled up to": (
        {"layout": "padded", "last_batch": "pad"},
        {"batch_size": 4},
        dict.fromkeys(range(3), "3 rows, expected 4 with --last-batch pad"),
    ),
}


@pytest.mark.parametrize(
    ("options", "promised", "found"), BROKEN_PROMISES.values(), ids=BROKEN_PROMISES
)
def test_broken_promise_is_named_by_batch(
    tmp_path: Path, options: dict[str, Any], promised: dict[str, Any], found: dict[int, str]
) -> None:
    path = make_shards(tmp_path, **options)

    def promise(manifest: dict[str, Any]) -> None:
        for name, value in promised.items():
            (manifest if name == "bucket_keys" else manifest["options"])[name] = value

    change_manifest(path, promise)
    assert check(path)[0] == [
        f"structure: {SHARDS[0]}: batch {batch}: {what}" for batch, what in found.items()
    ]
    assert check(path)[1] == []


def test_joined_rows_of_varlen_are_over_the_budget(tmp_path: Path) -> None:
    path = make_rows(tmp_path, shard_bytes=1 << 20)
    change_shard(path, join_rows, num_batches=5)
    assert check(path)[0][0] == (
        f"structure: {SHARDS[0]}: batch 0: 11 cells, the options allow at most 8"
    )


@pytest.mark.parametrize("name", ["num_rows", "num_filler_rows"])
def test_counts_of_filler_in_the_ledger_are_checked(tmp_path: Path, name: str) -> None:
    path = make_shards(tmp_path, layout="padded", last_batch="pad")

    def change(manifest: dict[str, Any]) -> None:
        manifest["ledger"][name] += 1

    change_manifest(path, change)
    number = {"num_rows": 9, "num_filler_rows": 2}[name]
    assert check(path)[0] == [
        f"structure: manifest.json: {name} is {number + 1}, the shards have {number}"
    ]


def test_count_of_split_sequences_is_checked(tmp_path: Path) -> None:
    path = make_rows(tmp_path)
    change_manifest(path, lambda manifest: manifest["ledger"].update(num_split_sequences=3))
    assert check(path)[0] == [
        "structure: manifest.json: num_split_sequences is 3, the shards have 2"
    ]


def test_bucket_key_that_no_batch_needs_is_found(tmp_path: Path) -> None:
    path = make_shards(tmp_path, buckets="auto", num_buckets=3)  # 12 9 | 5 5 | 3 2 1

    def add(manifest: dict[str, Any]) -> None:
        assert manifest["bucket_keys"] == [3, 5, 12]
        manifest["bucket_keys"], manifest["options"]["num_buckets"] = [3, 5, 8, 12], 4

    change_manifest(path, add)
    assert check(path)[0] == ["structure: manifest.json: no batch has the width of bucket key 8"]
