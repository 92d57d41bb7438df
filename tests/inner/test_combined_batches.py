"""Subsets and concatenations of datasets, as torch makes them, with an EpochSampler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from here import HERE
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

import seqpack_cli as seqpack
from seqpack_cli import EpochSampler, SamplerOptions, ShardDataset


@pytest.fixture
def datasets(byte_store: Callable[..., Path], tmp_path: Path) -> list[ShardDataset]:
    """Two datasets of 5 and 3 batches, each batch of one sequence."""
    made = []
    for name, texts in (("a", ["x" * n for n in range(1, 6)]), ("b", ["yy", "y", "yyyyyyy"])):
        store = byte_store(texts, name=name)
        options = seqpack.PackOptions("padded", batch_size=1)
        seqpack.pack(store, tmp_path / f"shards-{name}", options, executor=HERE)
        made.append(ShardDataset(tmp_path / f"shards-{name}"))
    return made


def read_lengths(dataset: Dataset[Any], sampler: EpochSampler) -> list[int]:
    """Return the length of each batch of one epoch, read through a tracked DataLoader."""
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    return [int(batch.lengths[0]) for batch in sampler.track(loader)]


def test_a_subset_is_sampled_like_a_dataset(datasets: list[ShardDataset]) -> None:
    part = Subset(datasets[0], [4, 0, 2])
    assert read_lengths(part, EpochSampler(part, shuffle=False)) == [1, 5, 3]
    for seed in range(3):
        found = read_lengths(part, EpochSampler(part, seed=seed))
        assert sorted(found) == [1, 3, 5]
        assert found == read_lengths(part, EpochSampler(part, seed=seed))


def test_random_splits_share_no_batch(datasets: list[ShardDataset]) -> None:
    parts = random_split(datasets[0], [3, 2])
    found = [read_lengths(part, EpochSampler(part)) for part in parts]
    assert sorted(found[0] + found[1]) == [1, 2, 3, 4, 5]


def test_a_concatenation_is_sampled_like_a_dataset(datasets: list[ShardDataset]) -> None:
    whole = ConcatDataset([datasets[1], Subset(datasets[0], range(2))])
    assert read_lengths(whole, EpochSampler(whole, shuffle=False)) == [7, 2, 1, 5, 4]
    assert sorted(read_lengths(whole, EpochSampler(whole))) == [1, 2, 4, 5, 7]


def test_ranks_and_balance_know_the_cells_of_a_combination(datasets: list[ShardDataset]) -> None:
    whole = ConcatDataset([datasets[1], Subset(datasets[0], np.array([0, 4]))])
    options = SamplerOptions(longest_first=True)
    found = [
        read_lengths(whole, EpochSampler(whole, rank=rank, world_size=2, options=options))
        for rank in range(2)
    ]
    assert {found[0][0], found[1][0]} == {7, 5}
    assert sorted({*found[0], *found[1]}) == [1, 2, 5, 7]


def test_a_state_is_of_the_same_combination(datasets: list[ShardDataset]) -> None:
    part = Subset(datasets[0], [4, 0, 2])
    sampler = EpochSampler(part, seed=1)
    sampler.skip_steps(1)
    again = EpochSampler(Subset(datasets[0], (4, 0, 2)))
    again.load_state_dict(sampler.state_dict())
    assert again.peek(9).tolist() == sampler.peek(9).tolist()
    for other in (datasets[0], Subset(datasets[0], [0, 4, 2]), ConcatDataset([part])):
        with pytest.raises(ValueError, match="state"):
            EpochSampler(other).load_state_dict(sampler.state_dict())


def test_a_slice_is_a_subset_that_reads_nothing(datasets: list[ShardDataset]) -> None:
    part = datasets[0][1:4]
    assert isinstance(part, Subset)
    assert [int(batch.lengths[0]) for batch in part] == [4, 3, 2]
    assert read_lengths(part, EpochSampler(part, shuffle=False)) == [4, 3, 2]
    assert len(datasets[0][-1:]) == 1
    assert len(datasets[0][9:]) == 0


def test_repr_names_the_kind_and_the_first_dataset(datasets: list[ShardDataset]) -> None:
    sampler = EpochSampler(Subset(datasets[0], [1, 2]), seed=3, rank=0, world_size=2)
    path = str(datasets[0].path)
    assert repr(sampler) == (
        f"EpochSampler(Subset(num_batches=2, of ShardDataset({path!r}, layout='padded', "
        "num_batches=5, labels=None)), seed=3, shuffle=True, epoch=0, rank=0, world_size=2)"
    )


@pytest.mark.parametrize("combine", [lambda it: it, lambda it: it[:2], lambda it: it + it])
def test_sequences_need_store_batches(
    byte_store: Callable[..., Path], combine: Callable[[Any], Any]
) -> None:
    dataset = combine(seqpack.StoreDataset(byte_store(["ab", "c", "def"])))
    with pytest.raises(TypeError, match=r"items are sequences: pass StoreBatches\(dataset, Pack"):
        EpochSampler(dataset)


def test_store_batches_need_a_whole_store(byte_store: Callable[..., Path]) -> None:
    part: Any = seqpack.StoreDataset(byte_store(["ab", "c", "def"]))[:2]
    with pytest.raises(TypeError) as caught:
        seqpack.StoreBatches(part, seqpack.PackOptions())
    assert str(caught.value) == (
        "dataset is a Subset, expected a StoreDataset: batches are planned from the lengths of a "
        "whole store; for a part of it use torch's samplers and a collate function"
    )
    loader = DataLoader(part, batch_size=2, collate_fn=seqpack.collate_packed)
    assert [batch.original_indices.tolist() for batch in loader] == [[0, 1]]
