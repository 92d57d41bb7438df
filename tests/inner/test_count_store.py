"""The lengths of a store, counted by tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE

from seqpack_cli.batching.length_counts import SourceCounts
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.workers import Executor, Progress, Workers
from seqpack_cli.shards.count_store import count_store
from seqpack_cli.shards.selected_store import SelectedStore
from seqpack_cli.shards.source_setup import SourceSetup
from seqpack_cli.tokens.store import TokenStore, open_store


def count(store: TokenStore, executor: Executor, **values: Any) -> SourceCounts:
    source = SelectedStore(store, PackOptions(**values).resolve())
    return count_store(source, SourceSetup.of(source), Workers(executor, Progress()))


def test_lengths_that_tasks_count_are_those_of_the_store(byte_store: Callable[..., Path]) -> None:
    path = byte_store(
        [chr(97 + number % 26) * (1 + number % 37) for number in range(60)], part_bytes=1
    )
    store = open_store(path)
    assert len(store.manifest["parts"]) > LIMITS.parts_per_task
    found = count(store, Executor(num_workers=2))
    lengths, counts = np.unique(store.lengths, return_counts=True)
    assert found.left_out == {}
    assert found.kept.lengths.tolist() == lengths[::-1].tolist()
    assert found.kept.counts.tolist() == counts[::-1].tolist()
    counts = count(store, Executor(num_workers=2), where=["@length >= 9"])
    assert counts.kept.lengths.tolist() == [each for each in found.kept.lengths if each >= 9]
    assert counts.left_out["where"].lengths.tolist() == [
        each for each in found.kept.lengths if each < 9
    ]


def test_tasks_that_count_find_a_damaged_index(byte_store: Callable[..., Path]) -> None:
    path = byte_store(["abc", "defg"])
    store = open_store(path)
    index = path / "part-00000.idx"
    data = bytearray(index.read_bytes())
    data[34] ^= 1  # the length of the first sequence
    index.write_bytes(data)
    with pytest.raises(FolderError, match=r"part-00000\.idx"):
        count(store, HERE)
