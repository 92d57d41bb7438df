"""Arrays that lie, in shards whose sizes and checksums are right: each is named by every reader.

One table for the three that look: `open_shards` and `ShardDataset` refuse the batch, level
`structure` of verify finds it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_reference import Arrays, change_shard, make_shards, put

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.verification.integers.structure import check_structure
from seqpack_cli.verification.report import LevelReport

SHARD = "shard-00000.safetensors"
Change = Callable[[Arrays], object]
# Of LENGTHS. The first batch has lengths 12, 9, 5, the second 5, 3, 2, the third 1; `filler` and
# `left` have two rows of filler behind the row of one id. Bins of varlen hold 8 tokens at most:
# sequences 1 and 5, of 9 and 12 tokens, are in two pieces.
KINDS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"layout": "padded"},
    "filler": {"layout": "padded", "last_batch": "pad"},
    "left": {"layout": "padded", "last_batch": "pad", "padding_side": "left"},
    "varlen": {"layout": "varlen", "max_tokens": 8, "fill": "sequential"},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make shards of every kind, which each reader takes."""
    folder = tmp_path_factory.mktemp("good")
    for kind, options in KINDS.items():
        path = make_shards(folder / kind, **options)
        assert find_structure(path) == []
        assert len(list(open_shards(path))) == len(ShardDataset(path))
    return folder


def find_structure(path: Path) -> list[str]:
    shards = open_shards(path, check_present=False)
    return [str(finding) for finding in check_structure(shards, LevelReport("structure"))[0]]


def check_named(good: Path, folder: Path, kind: str, change: Change, batch: int, said: str) -> None:
    """Change a shard, and assert what each reader says when it comes to a batch."""
    shutil.copytree(good / kind / "shards", folder / "shards")
    change_shard(folder / "shards", change)
    for open_batches in (open_shards, ShardDataset):
        with pytest.raises(FolderError, match=rf"^{folder / 'shards' / SHARD}: {said}"):
            open_batches(folder / "shards")[batch]
    assert re.match(rf"structure: {SHARD}: {said}", find_structure(folder / "shards")[0])


def put_all(name: str, values: list[int]) -> Change:
    """Return a change that puts other values in an array's place."""

    def change(arrays: Arrays) -> None:
        arrays[name] = np.array(values, arrays[name].dtype)

    return change


MAX, EMPTY = 2**63 - 1, "expected no empty sequence$"
FILLER, HAS_IDS = "filler rows in a batch of 3 rows$", "expected 0 and -1 in filler rows alone$"
# Kind, change, batch, what is said of the batch.
BATCHES: dict[str, tuple[str, Change, int, str]] = {
    "batch_sizes rise": ("packed", put("batch_sizes", 1, 1), 0, r"batch_sizes\[1\] is 1, but 3"),
    "batch_sizes moved": ("packed", put("batch_sizes", 5, 3), 0, r"batch_sizes\[5\] is 3, but 2"),
    "batch_sizes zero": ("packed", put("batch_sizes", 11, 0), 0, r"batch_sizes\[11\] is 0, but 1"),
    "batch_sizes negative": ("packed", put("batch_sizes", 0, -3), 0, r"batch_sizes\[0\] is -3"),
    "batch_sizes huge": ("packed", put("batch_sizes", 0, MAX), 0, rf"batch_sizes\[0\] is {MAX}, "),
    "length zero": ("packed", put("lengths", 2, 0), 0, f"row 2 has length 0, {EMPTY}"),
    "length negative": ("packed", put("lengths", 2, -1), 0, f"row 2 has length -1, {EMPTY}"),
    "lengths rise": ("packed", put("lengths", 1, 4), 0, "row 2 is longer than the one before"),
    "length off": ("packed", put("lengths", 0, 13), 0, "12 batch_sizes, the longest row has 13"),
    "length huge": ("packed", put("lengths", 0, 10**12), 0, "12 batch_sizes, the longest row has"),
    "id above": ("packed", put("data", 4, 259), 0, "id 259 at cell 4, expected ids from 0 to 258$"),
    "border moved": ("packed", put("data_offsets", 1, 25), 0, "batch_sizes add up to 26, data"),
    "padding": ("padded", put("data", 23, 7), 0, r"cell \[1, 11\] is padding and holds 7"),
    "width zero": ("padded", put("widths", 0, 0), 0, "3 rows of width 0, data has 36 cells"),
    "width negative": ("padded", put("widths", 0, -12), 0, "3 rows of width -12, data has 36"),
    "width off": ("padded", put("widths", 0, 9), 0, "3 rows of width 9, data has 36 cells"),
    "padded length off": ("padded", put("lengths", 0, 13), 0, "row 0 has 13 ids, width is 12"),
    "padded length huge": ("padded", put("lengths", 0, 10**12), 0, "row 0 has 1000000000000"),
    "padded lengths rise": (
        "padded",
        put("lengths", 1, 4),
        0,
        "row 2 is longer than the one before",
    ),
    "padded id above": ("padded", put("data", 0, 300), 0, r"id 300 at cell \[0, 0\], expected ids"),
    "more filler": (
        "filler",
        put("num_filler_rows", 0, 1),
        0,
        f"row 2 has length 5 and original index 2, {HAS_IDS}",
    ),
    "less filler": (
        "filler",
        put("num_filler_rows", 2, 1),
        2,
        f"row 1 has length 0 and original index -1, {HAS_IDS}",
    ),
    "no filler": (
        "filler",
        put("num_filler_rows", 2, 0),
        2,
        f"row 1 has length 0 and original index -1, {HAS_IDS}",
    ),
    "all filler": ("filler", put("num_filler_rows", 2, 3), 2, f"3 {FILLER}"),
    "negative filler": ("left", put("num_filler_rows", 1, -1), 1, f"-1 {FILLER}"),
    "huge filler": ("filler", put("num_filler_rows", 1, MAX), 1, f"{MAX} {FILLER}"),
    "filler with a length": (
        "filler",
        put("lengths", 8, 1),
        2,
        f"row 2 has length 1 and original index -1, {HAS_IDS}",
    ),
    "filler with a sequence": (
        *("left", put("original_indices", 8, 2), 2),
        f"row 2 has length 0 and original index 2, {HAS_IDS}",
    ),
    "filler with an id": ("filler", put("data", -1, 7), 2, r"cell \[2, 0\] is padding and holds 7"),
    "left padding": ("left", put("data", 12, 7), 0, r"cell \[1, 0\] is padding and holds 7"),
    "left length huge": (
        "left",
        put("lengths", 0, 2**62),
        0,
        f"row 0 has {2**62} ids",
    ),
    "varlen length zero": ("varlen", put("lengths", 0, 0), 0, f"row 0 has length 0, {EMPTY}"),
    "varlen length negative": ("varlen", put("lengths", 0, -(2**63)), 0, "row 0 has length -9"),
    "varlen length off": ("varlen", put("lengths", 0, 4), 0, "row 0 has 4 ids, data has 3 cells"),
    "varlen length huge": ("varlen", put("lengths", 0, MAX), 0, f"row 0 has {MAX} ids"),
    "varlen id above": ("varlen", put("data", 1, 259), 0, "id 259 at cell 1, expected ids from 0"),
}


@pytest.mark.parametrize(("kind", "change", "batch", "said"), BATCHES.values(), ids=BATCHES)
def test_batch_that_lies_is_named(
    good: Path, tmp_path: Path, kind: str, change: Change, batch: int, said: str
) -> None:
    check_named(good, tmp_path, kind, change, batch, f"batch {batch}: {said}")


RISE = r"_offsets does not rise from 0 in \d+ entries$"
SHARDS: dict[str, tuple[str, Change, str]] = {
    "data_offsets": ("packed", put("data_offsets", 1, 99), f"data{RISE}"),
    "sequence_offsets": (
        "padded",
        put("sequence_offsets", 3, 8),
        "lengths has 7 entries, expected 8, the last of sequence_offsets$",
    ),
    "step_offsets": ("packed", put("step_offsets", 0, -1), f"step{RISE}"),
    "offsets that wrap": (
        *("padded", put_all("sequence_offsets", [0, MAX, -2, 7])),
        f"sequence{RISE}",
    ),
    "too few widths": (
        *("padded", put_all("widths", [12, 5])),
        "widths has 2 entries, expected 3, one for each batch$",
    ),
    "more indices than rows": (
        *("packed", put_all("original_indices", [0, 1, 2, 3])),
        "original_indices has 4 entries, expected 7, the last of sequence_offsets$",
    ),
    "a missing array": (
        *("packed", lambda arrays: arrays.pop("batch_sizes")),
        "batch_sizes is missing, expected int64$",
    ),
    "another dtype": (
        *("packed", lambda arrays: arrays.update(data=arrays["data"].astype(np.int32))),
        "data is int32, expected uint16$",
    ),
    "float lengths": (
        *("packed", lambda arrays: arrays.update(lengths=arrays["lengths"].astype(np.float32))),
        r"lengths is F32\[7\], expected one dimension of I64 or U64 or F64 or I32 or U16 or U8$",
    ),
    "filler that the options do not have": (
        *("padded", lambda arrays: arrays.update(num_filler_rows=np.zeros(3, np.int64))),
        "num_filler_rows is int64, expected no such array$",
    ),
    "no batch": (
        "padded",
        lambda arrays: arrays.update(
            {name: array[: int(name.endswith("_offsets"))] for name, array in arrays.items()}
        ),
        f"sequence{RISE}",
    ),
}


@pytest.mark.parametrize(("kind", "change", "said"), SHARDS.values(), ids=SHARDS)
def test_shard_that_lies_is_named(
    good: Path, tmp_path: Path, kind: str, change: Change, said: str
) -> None:
    check_named(good, tmp_path, kind, change, 0, said)
