"""Subsets and concatenations of ShardDatasets, as torch makes them, for an EpochSampler.

Their batches are numbered as torch numbers the items: those of a `Subset` by its `indices`, those
of a `ConcatDataset` one dataset after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from blake3 import blake3
from torch.utils.data import ConcatDataset, Subset

from seqpack_cli.batching.order import BATCHES, shuffled
from seqpack_cli.training.alike_shards import check_alike, join_fingerprints
from seqpack_cli.training.epoch_plan import EpochBatches, EpochPlan
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.training.store_dataset import StoreDataset

EXPECTED = "expected a ShardDataset, a Subset or ConcatDataset of them, or StoreBatches"


class CombinedBatches:
    """The batches of a `Subset` or `ConcatDataset` of ShardDatasets.

    Raises:
        TypeError: another dataset is among them.
        ValueError: two of them differ in layout, tokenizer, padding or columns, or are streams.
    """

    is_fixed = True

    def __init__(self, dataset: Subset[Any] | ConcatDataset[Any]) -> None:
        self.dataset = dataset
        self.fingerprint = _find_fingerprint(dataset, _find_fixed)
        _check_parts(dataset)

    def __repr__(self) -> str:
        leaf: Any = self.dataset
        while isinstance(leaf, Subset | ConcatDataset):
            leaf = leaf.dataset if isinstance(leaf, Subset) else leaf.datasets[0]
        return f"{type(self.dataset).__name__}(num_batches={len(self.dataset)}, of {leaf!r})"

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Put the batches into an order of the seed, or leave them in that of the dataset."""
        num_batches = len(self.dataset)
        order = np.arange(num_batches)
        if seed is not None:
            order = shuffled(num_batches, seed=seed, stream=BATCHES)
        return EpochPlan(range(num_batches), order, lambda cost: _count_costs(self.dataset, cost))


def find_batches(batches: Any) -> EpochBatches:
    """Return what an EpochSampler orders.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(batches, Subset | ConcatDataset):
        return CombinedBatches(batches)
    if isinstance(batches, StoreDataset):
        raise TypeError(
            "batches is a StoreDataset, whose items are sequences: "
            "pass StoreBatches(dataset, PackOptions(...))"
        )
    if not hasattr(batches, "plan_epoch"):
        raise TypeError(f"batches is a {type(batches).__name__}, {EXPECTED}")
    found: EpochBatches = batches
    return found


def may_read(batches: EpochBatches, dataset: Any) -> bool:
    """Return whether the keys of batches may be those of a dataset.

    False only if both are known and differ in content: a dataset of your own may read ours.
    """
    expected = getattr(batches, "dataset", batches)
    if expected is dataset:
        return True
    try:
        found, wanted = (_find_fingerprint(it, _find_content) for it in (dataset, expected))
    except TypeError:
        return True
    return found == wanted


def _find_fingerprint(dataset: Any, find_part: Callable[[Any], str]) -> str:
    """Return a checksum that is the same for the same items in the same order.

    Args:
        find_part: returns that of a dataset that is neither a Subset nor a ConcatDataset.
    """
    if isinstance(dataset, Subset):
        part = _find_fingerprint(dataset.dataset, find_part)
        spelled = f"subset {part} {_list_indices(dataset)}"
        return blake3(spelled.encode()).hexdigest()
    if isinstance(dataset, ConcatDataset):
        return join_fingerprints([_find_fingerprint(part, find_part) for part in dataset.datasets])
    return find_part(dataset)


def _find_fixed(dataset: Any) -> str:
    batches = find_batches(dataset)
    if not batches.is_fixed:
        raise TypeError(f"batches has a part that is a {type(dataset).__name__}, {EXPECTED}")
    return batches.fingerprint


def _check_parts(dataset: Any) -> None:
    """Raise ValueError unless a model can take the batches of all parts."""
    parts = [*_iter_parts(dataset)]
    if any(part.num_streams is not None for part in parts):
        raise ValueError(
            f"batches is a {type(dataset).__name__} of streams, whose state goes on from batch to "
            "batch: expected a whole ShardDataset"
        )
    check_alike(
        [shards.with_columns(part.columns) for part in parts for shards in part.open_shards()]
    )


def _iter_parts(dataset: Any) -> Iterator[ShardDataset]:
    if isinstance(dataset, Subset):
        yield from _iter_parts(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _iter_parts(part)
    elif isinstance(dataset, ShardDataset):  # not a class of your own
        yield dataset


def _find_content(dataset: Any) -> str:
    """Return a checksum of the items of one of our own datasets; TypeError for others."""
    if isinstance(dataset, StoreDataset):
        return f"store {dataset.open_store().digest}"
    if isinstance(dataset, ShardDataset):
        return dataset.fingerprint
    raise TypeError(f"{type(dataset).__name__}: unknown content")


def _count_costs(dataset: Any, cost: str) -> np.ndarray:
    if isinstance(dataset, Subset):
        return _count_costs(dataset.dataset, cost)[_list_indices(dataset)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_count_costs(part, cost) for part in dataset.datasets])
    costs: np.ndarray = dataset.plan_epoch(None).count_costs(cost)
    return costs


def _list_indices(dataset: Subset[Any]) -> list[int]:
    return [int(index) for index in dataset.indices]
