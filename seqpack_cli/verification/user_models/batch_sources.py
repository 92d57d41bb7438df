"""Where the batches to check come from: data sets, DataLoaders, or any iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset

from seqpack_cli.training.collate import OF_LAYOUT
from seqpack_cli.training.shard_dataset import ShardDataset
from seqpack_cli.verification.options import ModelOptions
from seqpack_cli.verification.user_models.batch_kinds import (
    KINDS,
    Collate,
    bind_collate,
    take_samples,
)
from seqpack_cli.verification.user_models.case import Case, to_device
from seqpack_cli.verification.user_models.located_batch import (
    Locate,
    LocatedBatch,
    locate_batch,
)


@dataclass(frozen=True)
class CaseMaker:
    """How batches become cases."""

    source: str
    device: torch.device
    locate: Locate | None = None  # None: ours
    collate: Collate | None = None

    def make(
        self, index: int, batch: Any, *, source: str | None = None, samples: Any = None
    ) -> Case:
        """Return a batch as a case.

        Args:
            samples: what the batch was made of; None takes the sequences out of the batch.

        Raises:
            ValueError: locate is missing for a batch of an unknown class.
        """
        batch = to_device(batch, self.device)
        kind = KINDS.get(type(batch))
        locate = self.locate or (kind.locate if kind is not None else None)
        if locate is None:
            raise ValueError(
                f"batches are {type(batch).__name__}: pass locate, a function that returns "
                "(ids, cells) of a batch"
            )
        found = locate_batch(batch, locate)
        case = Case(source or self.source, index, found, locate, self.device, None, self.collate)
        if self.collate is None:
            return case
        if samples is None:
            take = take_ids if kind is None else take_samples
            return replace(case, samples=take(found))
        return replace(case, samples=order_samples(case, samples))


def take_ids(found: LocatedBatch) -> list[torch.Tensor]:
    """Return the ids of each sequence, which collate_fn gets where there are no other samples."""
    return [found.sequence(number) for number in range(len(found.cells))]


def order_samples(case: Case, samples: Sequence[Any]) -> list[Any]:
    """Return the sample of each sequence of a batch, since collate_fn may have sorted them.

    Raises:
        ValueError: a sequence has other ids than every sample alone.
    """
    assert case.collate is not None  # noqa: S101
    left: dict[tuple[int, ...], list[Any]] = {}
    for sample in samples:
        alone = locate_batch(to_device(case.collate([sample]), case.device), case.locate)
        if len(alone.cells) != 1:
            raise ValueError(
                f"collate_fn made {len(alone.cells)} sequences of one sample, expected one"
            )
        left.setdefault(alone.key(0), []).append(sample)
    ordered = []
    for number in range(len(case.found.cells)):
        same = left.get(case.found.key(number))
        if not same:
            raise ValueError(
                f"{case.place}: sequence {number} has other ids than each sample that collate_fn "
                "lays out alone, expected those of one of them"
            )
        ordered.append(same.pop(0))
    return ordered


def iter_cases(batches: Any, maker: CaseMaker, options: ModelOptions) -> Iterator[Case]:
    """Yield the batches to check of a data set, a DataLoader or an iterable.

    Raises:
        ValueError: there is no batch, or locate is missing for one of an unknown class.
    """
    loader = batches if isinstance(batches, DataLoader) else None
    if loader is not None and maker.collate is None:
        if loader.batch_sampler is not None and _is_map(loader.dataset):
            maker = replace(maker, collate=_collate_of(loader))
            keys: Iterable[Any] = islice(loader.batch_sampler, options.sample)
            yield from _iter_samples(loader.dataset, keys, maker)
            return
        if isinstance(_unwrap(loader.dataset), ShardDataset):
            batches = loader.dataset
    shards = _unwrap(batches)
    if isinstance(shards, ShardDataset):
        if maker.collate is None:
            manifest = shards.open_shards()[0].manifest
            maker = replace(maker, collate=collate_like(manifest, shards.labels))
        for index in choose_places(len(batches), options.sample, options.seed):
            yield maker.make(index, batches[index])
    elif maker.collate is not None and loader is None and _is_map(batches):
        order = np.random.default_rng(options.seed).permutation(len(batches)).tolist()
        size = options.batch_size
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        yield from _iter_samples(batches, islice(chunks, options.sample), maker)
    else:
        for index, batch in enumerate(islice(iter(batches), options.sample)):
            yield maker.make(index, batch)


def collate_like(manifest: Mapping[str, Any], labels: str | None) -> Collate:
    """Return the collate function that lays sequences out as shards are."""
    return bind_collate(OF_LAYOUT[manifest["layout"]][0], manifest, labels)


def choose_places(length: int, num_chosen: int | None, seed: int) -> list[int]:
    """Choose some of the batches at random, the first and the last among them."""
    if num_chosen is None or num_chosen >= length:
        return list(range(length))
    drawn = np.random.default_rng(seed).permutation(length)
    return sorted(list(dict.fromkeys([0, length - 1, *drawn.tolist()]))[:num_chosen])


def _iter_samples(dataset: Any, keys: Iterable[Any], maker: CaseMaker) -> Iterator[Case]:
    assert maker.collate is not None  # noqa: S101
    for index, chosen in enumerate(keys):
        several = getattr(dataset, "__getitems__", None)
        samples = several(chosen) if several is not None else [dataset[each] for each in chosen]
        yield maker.make(index, maker.collate(samples), samples=list(samples))


def _collate_of(loader: DataLoader[Any]) -> Collate:
    collate: Any = loader.collate_fn
    return collate  # type: ignore[no-any-return]


def _is_map(dataset: Any) -> bool:
    """Return whether items of a data set can be read by number."""
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _unwrap(dataset: Any) -> Any:
    """Return the data set of which another one is a part."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset
