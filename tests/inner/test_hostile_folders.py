"""Folders of a stranger take little memory and time; tests/test_hostile.py has the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fuzz_guard import limited
from fuzz_lab import MANIFEST, open_lab, put_kind
from fuzz_mutators import Choices
from fuzz_uses import SHARDS_USES, STORE_USES, run_use
from shard_reference import Arrays, change_shard, make_shards

from seqpack_cli.reporting.rows import describe_sequence
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.unpack import iter_unpacked


@pytest.mark.parametrize(
    ("file", "size", "growth_bytes"),
    [
        (MANIFEST, 127 << 20, 1 << 30),  # which is read
        *((file, 1 << 30, 128 << 20) for file in (MANIFEST, "run.json", "tokenizer.json")),
    ],
)
@pytest.mark.parametrize("name", ["store", "packed"])
def test_sparse_file_of_wide_characters_takes_little_memory(
    name: str, file: str, size: int, growth_bytes: int
) -> None:
    """A hole costs a stranger nothing."""
    lab = open_lab()
    seed = next(seed for seed in (*lab.stores, *lab.shards) if seed.folder.name == name)
    uses = STORE_USES if name == "store" else SHARDS_USES
    for use in uses:
        run_use(use, seed.folder, Choices(b"\1"))  # which imports much
    uses = uses if size > 128 << 20 else uses[:1]
    with put_kind(seed.folder / file, "nothing"):
        (seed.folder / file).write_bytes('{"a": "\U0001f600'.encode())
        with (seed.folder / file).open("ab") as sparse:
            sparse.truncate(size)
        with limited(growth_bytes=growth_bytes):
            errors = [run_use(use, seed.folder, Choices(b"\1")).error for use in uses]
    assert any(errors) or file != MANIFEST


@pytest.mark.parametrize(("use", "count"), [("unpack", 40_000), ("inspect", 40_000)])
def test_sequence_of_many_pieces_is_read_in_time(tmp_path: Path, use: str, count: int) -> None:
    """A shard of 1 or 2 MB took a minute, and one of 10 MB an hour."""
    path = make_shards(tmp_path, [5, 3], layout="varlen", max_tokens=100)

    def change(arrays: Arrays) -> None:
        arrays["lengths"], arrays["data"] = np.ones(count, np.int64), np.ones(count, np.uint16)
        arrays["original_indices"], arrays["piece_starts"] = np.zeros((2, count), np.int64)
        arrays["piece_starts"] += np.arange(count)
        arrays["sequence_offsets"] = arrays["data_offsets"] = np.array([0, count])

    change_shard(path, change, num_rows=count, num_batches=1, longest=1, num_tokens=count)
    shards = open_shards(path)
    with limited(seconds=15):
        if use == "unpack":
            assert [len(each.ids) for each in iter_unpacked(shards, {})] == [count]
        else:
            assert describe_sequence(shards, 0)["length"] == count
