"""A loader whose EpochSampler knows what the training loop was given, whatever was read ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.data import BatchSampler, DataLoader


class CountingSampler(Protocol):
    """What a tracked loader tells its sampler."""

    def __len__(self) -> int: ...

    def begin_pass(self) -> Callable[[], bool]:
        """Begin to iterate; what is returned says whether this pass still counts."""

    def count_one(self) -> None:
        """Count a batch that the loop was given."""

    def end_pass(self, *, is_over: bool) -> None:
        """End it, with the whole epoch if that is over."""


class TrackedLoader:
    """Iterates over a loader and counts for its sampler; see EpochSampler.track."""

    def __init__(self, sampler: CountingSampler, loader: Any) -> None:
        self.sampler = sampler
        self.loader = loader
        # torch's own BatchSampler over ours: an item is a list of batches
        self._is_grouped = isinstance(getattr(loader, "batch_sampler", None), BatchSampler)
        if isinstance(loader, TrackedLoader):
            raise ValueError("the loader is tracked already")
        if isinstance(loader, DataLoader):
            self._check_loader(loader)

    def __iter__(self) -> Iterator[Any]:
        sampler, was_given, is_over = self.sampler, False, False
        goes_on = sampler.begin_pass()
        try:
            for item in self.loader:
                for batch in self._split(item):
                    sampler.count_one()
                    was_given = True
                    yield batch
                    if not goes_on():
                        return
            # what is left, if nothing comes or groups are dropped, is never given
            is_over = not was_given or (self._is_grouped and self.loader.drop_last)
        finally:
            sampler.end_pass(is_over=is_over)

    def __len__(self) -> int:
        """Count the batches that are left in this epoch."""
        return len(self.sampler)

    def _split(self, item: Any) -> list[Any]:
        if not self._is_grouped:
            return [item]
        if not isinstance(item, list):
            raise TypeError(
                f"a fetch of several batches gave a {type(item).__name__}, expected a list: pass "
                "collate_fn=list, or batch_size=None"
            )
        return item

    def _check_loader(self, loader: DataLoader[Any]) -> None:
        samplers = (loader.sampler, loader.batch_sampler)
        inner = getattr(loader.batch_sampler, "sampler", None)
        if not any(found is self.sampler for found in (*samplers, inner)):
            raise ValueError("the loader has another sampler: give it this one")
        if getattr(loader, "in_order", True) is False:
            raise ValueError("a loader with in_order=False gives batches in no order to go on from")
