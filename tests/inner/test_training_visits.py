"""Two processes train on stores with passes, stop, continue, and visit each sequence as often."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from batching_reference import slow_split, slow_visits
from here import HERE
from shard_reference import make_store, make_texts
from torch.utils.data import DataLoader

from seqpack_cli import (
    EpochSampler,
    PackOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    open_store,
    pack,
)

NUM_RANKS, NUM_EPOCHS, NUM_STEPS = 2, 2, 5  # steps before the stop in the last epoch
PASSES = {"a": Fraction(5, 2), "b": Fraction(1, 2), "c": Fraction(1)}
SHARES = [Fraction(4, 5), Fraction(1, 5)]
OPTIONS: dict[str, Any] = {
    **{"batch_size": 3, "passes": "a=2.5,b=0.5", "store_column": "store"},
    **{"split": "train=0.8,test=rest", "split_name": "train"},
}
Visits = list[tuple[int, int, list[int]]]  # epoch, number of the batch, its sequences


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Stores named by their folders, where long documents are several sequences."""
    folder, found = tmp_path_factory.mktemp("visits"), []
    for number, name in enumerate(PASSES):
        lengths = [2 + (7 * document) % (11 + number) for document in range(16)]
        store = make_store(folder / f"of {name}", make_texts(lengths, number), max_length=6)
        found.append(store.rename(folder / name))
    return found


def open_batches(kind: str, stores: Sequence[Path]) -> tuple[Any, Any, Any]:
    """Return what a sampler orders, the dataset of the loader, and other arguments of it."""
    if kind == "shards":
        dataset = ShardDataset(stores[0].parent / "shards", labels="next")
        return dataset, dataset, {"batch_size": None}
    sequences = StoreDataset(stores)
    batches = StoreBatches(sequences, PackOptions(**OPTIONS))
    return batches, sequences, {"collate_fn": batches.make_collate(labels="next")}


def train(kind: str, stores: Sequence[Path], group: Path, rank: int, results: Any) -> None:
    """Be one of the ranks: train up to the stop, or from there to the end of the last epoch."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{group}",
        rank=rank,
        world_size=NUM_RANKS,
        timeout=timedelta(seconds=60),
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(259, 4), torch.nn.Linear(4, 259))
    batches, dataset, options = open_batches(kind, stores)
    sampler = EpochSampler(batches, seed=3)
    order = {"sampler" if kind == "shards" else "batch_sampler": sampler}
    loader = sampler.track(DataLoader(dataset, **order, **options))
    state, visits = group.parent / "state.json", Visits()
    is_continued = state.exists()
    torch.distributed.barrier()
    if is_continued:
        sampler.load_state_dict(json.loads(state.read_text()))
    while sampler.epoch < NUM_EPOCHS:
        epoch, numbers = sampler.epoch, sampler.peek(len(sampler))[:, rank].tolist()
        is_last = epoch == NUM_EPOCHS - 1 and not is_continued
        for step, (number, batch) in enumerate(zip(numbers, loader, strict=True), start=1):
            visits.append((epoch, number, batch.original_indices.tolist()))
            scores = model(batch.sequences.data)
            model.zero_grad()
            torch.nn.functional.cross_entropy(scores, batch.labels).backward()
            for weights in model.parameters():  # every rank takes part in every step
                torch.distributed.all_reduce(weights.grad)
                weights.data -= 0.05 * weights.grad
            if is_last and step == NUM_STEPS:
                break
        if is_last:
            break
    if rank == 0:
        state.write_text(json.dumps(sampler.state_dict()))
    results.put(visits)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_ranks(kind: str, stores: Sequence[Path], group: Path) -> Iterator[Visits]:
    context = multiprocessing.get_context("spawn")  # a fork of used threads may wait for ever
    results = context.Queue()
    processes = [
        context.Process(target=train, args=(kind, stores, group, rank, results))
        for rank in range(NUM_RANKS)
    ]
    for process in processes:
        process.start()
    yield from [results.get(timeout=90) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0


def expect_visits(stores: Sequence[Path], seed: int) -> Counter[int]:
    """Count the visits of each sequence, from the hash of its document."""
    visits: Counter[int] = Counter()
    numbers = iter(range(len(open_store(stores))))
    for path in stores:
        store = open_store(path)
        for part in range(store.num_parts):
            hashes, counts = store.part_hashes(part).tolist(), store.count_sequences(part).tolist()
            for document, num_sequences in zip(hashes, counts, strict=True):
                is_train = slow_split(document, SHARES, 0) == 0
                times = slow_visits(document, PASSES[path.name], seed) if is_train else 0
                visits.update({next(numbers): times for _ in range(num_sequences)})
    return visits


@pytest.mark.parametrize("kind", ["shards", "store"])
def test_visits_of_two_ranks_are_the_passes(stores: list[Path], tmp_path: Path, kind: str) -> None:
    sampler = EpochSampler(StoreBatches(StoreDataset(stores), PackOptions(**OPTIONS)), seed=3)
    if kind == "shards":
        packing = PackOptions(**OPTIONS, shuffle=True, seed=8)
        pack(stores, stores[0].parent / "shards", packing, executor=HERE)
    first = [*run_ranks(kind, stores, tmp_path / "group")]
    assert [len(visits) for visits in first] == [len(first[0])] * NUM_RANKS
    second = [*run_ranks(kind, stores, tmp_path / "again")]
    found: dict[int, dict[int, list[int]]] = {epoch: {} for epoch in range(NUM_EPOCHS)}
    for epoch, number, sequences in chain.from_iterable(first + second):
        # a batch that fills up the last step is that of the same number again
        assert found[epoch].setdefault(number, sequences) == sequences
    assert min(len(visits) for visits in second) > 0
    for epoch, batches in found.items():
        sampler.set_epoch(epoch)
        seed = 8 if kind == "shards" else sampler.epoch_seed
        assert seed is not None
        visits = Counter(chain.from_iterable(batches.values()))
        assert visits == +expect_visits(stores, seed)
        assert all(len({*sequences}) == len(sequences) for sequences in batches.values())
