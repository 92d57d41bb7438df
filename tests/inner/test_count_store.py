"""The lengths of a store, counted by tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import HERE

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.selection import SourceCounts
from seqpack_cli.errors import FolderError
from seqpack_cli.runs.workers import Executor, Progress, Workers
from seqpack_cli.shards.pack_shard import count_store
from seqpack_cli.shards.selection import Selection
from seqpack_cli.tokens.store import TokenStore, open_store


def count(store: TokenStore, executor: Executor, **values: Any) -> SourceCounts:
    source = Selection(store, PackOptions(**values).resolve())
    return count_store(source, Workers(executor, Progress()))


def test_tasks_that_count_find_a_damaged_index(byte_store: Callable[..., Path]) -> None:
    path = byte_store(["abc", "defg"])
    store = open_store(path)
    index = path / "part-00000.idx"
    data = bytearray(index.read_bytes())
    data[34] ^= 1  # the length of the first sequence
    index.write_bytes(data)
    with pytest.raises(FolderError, match=r"part-00000\.idx"):
        count(store, HERE)
