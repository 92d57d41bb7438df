"""Loaders in many threads of one process, as some training programs use them in place of workers.

Threads take turns far more often than usual, and maps are let go after each item: a reader that
changes what another one walks through then fails within one epoch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_reference import make_shards, make_store
from tensor_reference import assert_same

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.files.mapping import keep_mapped
from seqpack_cli.limits import LIMITS
from seqpack_cli.tokens.store import open_store
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_batches import StoreBatches
from seqpack_cli.training.store_dataset import StoreDataset

NUM_THREADS = 8
LENGTHS = tuple(np.random.default_rng(0).integers(1, 30, 240).tolist())


@pytest.fixture(scope="module", params=["packed", "padded", "varlen"])
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"max_tokens": 64, "batch_size": None} if request.param == "varlen" else {}
    folder = tmp_path_factory.mktemp(request.param)
    return make_shards(
        folder, LENGTHS, layout=request.param, shard_bytes=1, **{"batch_size": 3, **options}
    )


@pytest.fixture(autouse=True)
def many_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(LIMITS, "mapped_bytes", 1 << 22)  # some items, then all maps at once
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(
    take: Callable[[int], Any], num_items: int, *, num_rounds: int = 1
) -> list[list[Any]]:
    """Take every item in every thread, in another order each; give what each thread got."""

    def take_all(number: int) -> list[Any]:
        order = np.random.default_rng(number).permutation(num_items).tolist()
        found = {index: take(index) for _ in range(num_rounds) for index in order}
        return [found[index] for index in range(num_items)]

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(take_all, range(NUM_THREADS)))


def test_shard_dataset_gives_the_same_items_in_many_threads(shards: Path) -> None:
    dataset = ShardDataset(shards)
    expected = [*dataset]
    for found in in_threads(dataset.__getitem__, len(dataset), num_rounds=8):
        for item, other in zip(found, expected, strict=True):
            assert_same(item, other)


def test_store_batches_are_the_same_in_many_threads(shards: Path) -> None:
    dataset = StoreDataset(shards.parent / "store")
    batches = StoreBatches(dataset, PackOptions(max_tokens=256))
    collate = batches.make_collate(labels="next")
    keys = batches.plan_epoch(3).keys

    def take(index: int) -> Any:
        return collate(dataset.__getitems__(batches.plan_epoch(3).keys[index]))

    expected = [take(index) for index in range(len(keys))]
    for found in in_threads(take, len(keys)):
        for item, other in zip(found, expected, strict=True):
            assert_same(item, other)


def test_store_lets_pages_go_while_others_open_parts(tmp_path: Path) -> None:
    store = open_store(make_store(tmp_path, ["some text"] * 120, part_bytes=1))
    num_parts = len(store.manifest["parts"])
    assert num_parts > 100

    def read(part: int) -> list[int]:
        store.let_pages_go()
        return store[int(store.part_offsets[part])].tolist()

    expected = [store[int(first)].tolist() for first in store.part_offsets[:-1]]
    store = open_store(store.path)
    assert in_threads(read, num_parts) == [expected] * NUM_THREADS


def test_few_maps_are_kept_in_many_threads() -> None:
    kept: dict[int, int] = {}
    take = functools.partial(keep_mapped, kept, make=lambda number: number, max_kept=3)
    assert in_threads(take, 500, num_rounds=12) == [[*range(500)]] * NUM_THREADS
    assert len(kept) <= 3 + NUM_THREADS
