"""Iterate over a loader and count for its EpochSampler what the training loop has received.

torch's DataLoader takes 10 to 40 us for each item, as long as reading a batch of shards takes. One
that only asks its dataset for the next item, in this process, is therefore left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from seqpack_cli.training.combined_batches import may_read
from seqpack_cli.training.epoch_plan import EpochBatches

# Takes the batches of a pass and whether the loader drops the last ones; yields and counts them.
Count = Callable[[Iterator[Any], bool], Iterator[Any]]


class TrackedLoader:
    """A loader whose batches are counted by its sampler; see EpochSampler.track."""

    def __init__(
        self, sampler: Sized, batches: EpochBatches, loader: Any, count_given: Count
    ) -> None:
        self.sampler = sampler
        self.loader = loader
        self._count_given = count_given
        # torch's BatchSampler around our sampler: an item is a list of batches
        self._is_grouped = isinstance(getattr(loader, "batch_sampler", None), BatchSampler)
        if isinstance(loader, TrackedLoader):
            raise ValueError("the loader is already tracked")
        if isinstance(loader, DataLoader):
            self._check_loader(loader)
            if not may_read(batches, loader.dataset):
                raise ValueError("the loader has another dataset, expected that of this sampler")

    def __iter__(self) -> Iterator[Any]:
        return self._count_given(self._iter_batches(), self._is_grouped and self.loader.drop_last)

    def __len__(self) -> int:
        """Return the number of batches left in this epoch."""
        return len(self.sampler)

    def _iter_batches(self) -> Iterator[Any]:
        items = _read_items(self.loader) if _only_reads(self.loader) else self.loader
        for item in items:
            if self._is_grouped and not isinstance(item, list):
                raise TypeError(
                    f"collate_fn made a {type(item).__name__} of several batches, expected a list: "
                    "pass collate_fn=list, or batch_size=None"
                )
            yield from item if self._is_grouped else [item]

    def _check_loader(self, loader: DataLoader[Any]) -> None:
        samplers = (loader.sampler, loader.batch_sampler)
        inner = getattr(loader.batch_sampler, "sampler", None)
        if not any(found is self.sampler for found in (*samplers, inner)):
            raise ValueError("the loader has another sampler, expected this one")
        if getattr(loader, "in_order", True) is False:
            raise ValueError("the loader has in_order=False, which cannot be tracked")


def _only_reads(loader: Any) -> bool:
    """Return whether a loader does nothing but to read item after item in this process."""
    is_plain = type(loader) is DataLoader and loader.batch_sampler is None
    return is_plain and not (loader.num_workers or loader.pin_memory or loader.timeout)


def _read_items(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield what iterating over the loader yields; torch's profiler does not see it."""
    return (loader.collate_fn(loader.dataset[key]) for key in loader.sampler)
