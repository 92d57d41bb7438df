"""A loader whose EpochSampler knows what the training loop was given, whatever was read ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

# Of a pass: its batches, and whether the loader drops the last of an epoch; gives them on, counted.
Count = Callable[[Iterator[Any], bool], Iterator[Any]]


class TrackedLoader:
    """Iterates over a loader while its sampler counts; see EpochSampler.track."""

    def __init__(self, sampler: Sized, loader: Any, count_given: Count) -> None:
        self.sampler = sampler
        self.loader = loader
        self._count_given = count_given
        # torch's own BatchSampler over ours: an item is a list of batches
        self._is_grouped = isinstance(getattr(loader, "batch_sampler", None), BatchSampler)
        if isinstance(loader, TrackedLoader):
            raise ValueError("the loader is tracked already")
        if isinstance(loader, DataLoader):
            self._check_loader(loader)

    def __iter__(self) -> Iterator[Any]:
        return self._count_given(self._iter_batches(), self._is_grouped and self.loader.drop_last)

    def __len__(self) -> int:
        """Count the batches that are left in this epoch."""
        return len(self.sampler)

    def _iter_batches(self) -> Iterator[Any]:
        for item in self.loader:
            if self._is_grouped and not isinstance(item, list):
                raise TypeError(
                    f"a fetch of several batches gave a {type(item).__name__}, expected a list: "
                    "pass collate_fn=list, or batch_size=None"
                )
            yield from item if self._is_grouped else [item]

    def _check_loader(self, loader: DataLoader[Any]) -> None:
        samplers = (loader.sampler, loader.batch_sampler)
        inner = getattr(loader.batch_sampler, "sampler", None)
        if not any(found is self.sampler for found in (*samplers, inner)):
            raise ValueError("the loader has another sampler: give it this one")
        if getattr(loader, "in_order", True) is False:
            raise ValueError("a loader with in_order=False gives batches in no order to go on from")
