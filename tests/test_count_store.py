"""The lengths of a store, counted by tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import HERE

from seqpack_cli.errors import FolderError
from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.workers import Executor, Workers
from seqpack_cli.shards.count_store import PARTS_PER_TASK, count_store
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.tokens.open_store import open_store


def test_lengths_that_tasks_count_are_those_of_the_store(byte_store: Callable[..., Path]) -> None:
    path = byte_store(
        [chr(97 + number % 26) * (1 + number % 37) for number in range(60)], part_bytes=1
    )
    store = open_store(path)
    assert len(store.manifest["parts"]) > PARTS_PER_TASK
    found = count_store(SelectedStore(store), Workers(Executor(num_workers=2), Progress()))
    lengths, counts = np.unique(store.lengths, return_counts=True)
    assert found.left_out is None
    assert found.kept.lengths.tolist() == lengths[::-1].tolist()
    assert found.kept.counts.tolist() == counts[::-1].tolist()
    counts = count_store(
        SelectedStore(store, ["@length >= 9"]), Workers(Executor(num_workers=2), Progress())
    )
    assert counts.left_out is not None
    assert counts.kept.lengths.tolist() == [each for each in found.kept.lengths if each >= 9]
    assert counts.left_out.lengths.tolist() == [each for each in found.kept.lengths if each < 9]


def test_tasks_that_count_find_a_damaged_index(byte_store: Callable[..., Path]) -> None:
    path = byte_store(["abc", "defg"])
    store = open_store(path)
    index = path / "part-00000.idx"
    data = bytearray(index.read_bytes())
    data[34] ^= 1  # the length of the first sequence
    index.write_bytes(data)
    with pytest.raises(FolderError, match=r"part-00000\.idx"):
        count_store(SelectedStore(store), Workers(HERE, Progress()))
