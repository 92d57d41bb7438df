"""One batch to check: where it comes from, its sequences, and how to lay them out anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from seqpack_cli.verification.user_models.located_batch import (
    Locate,
    LocatedBatch,
    locate_batch,
    with_ids,
)

NO_COLLATE = "no collate_fn that can lay out its sequences again"


@dataclass(frozen=True)
class Rebuilt:
    """A batch of some of a case's sequences."""

    found: LocatedBatch
    numbers: list[int]  # of each of its sequences, the number in the case


@dataclass(frozen=True)
class Case:
    """A batch of a data set."""

    source: str  # the shard, or what the batches came from
    index: int
    found: LocatedBatch
    locate: Locate
    device: torch.device
    samples: Sequence[Any] | None = None  # of each sequence, what collate takes
    collate: Callable[[Sequence[Any]], Any] | None = None

    @property
    def place(self) -> str:
        """Where the batch is, for messages."""
        return f"{self.source}: batch {self.index}"

    def name(self, number: int) -> str:
        """Return the name of a sequence: its number in the token store, where the batch has it."""
        batch = self.found.batch
        indices = getattr(batch, "original_indices", None)
        if isinstance(indices, torch.Tensor):
            start = int(getattr(batch, "piece_starts", torch.zeros_like(indices))[number])
            piece = f" (its piece from token {start})" if start else ""
            return f"sequence {int(indices[number])}{piece}"
        return f"sequence {number} of the batch" if self.found.shares_rows else f"row {number}"

    @property
    def can_rebuild(self) -> bool:
        """Whether batches of some of the sequences can be made."""
        return self.samples is not None and self.collate is not None

    def rebuild(self, numbers: Sequence[int]) -> Rebuilt:
        """Return a batch of some of the sequences, as the collate function lays them out.

        Raises:
            ValueError: it has other sequences.
        """
        assert self.samples is not None and self.collate is not None  # noqa: S101
        batch = to_device(self.collate([self.samples[number] for number in numbers]), self.device)
        try:
            found = locate_batch(batch, self.locate)
            return Rebuilt(found, match(self.found, numbers, found))
        except ValueError as error:
            raise ValueError(f"{self.place}: {error}") from error

    def find_alike(self, number: int) -> list[int]:
        """Return the sequences that samples cannot tell from one, itself among them.

        They have the same ids, but other features, so that their outputs may differ.
        """
        assert self.samples is not None  # noqa: S101
        key, sample = self.found.key(number), self.samples[number]
        return [
            other
            for other in self.found.numbers
            if other == number
            or (
                len(self.found.cells[other]) == len(self.found.cells[number])
                and self.found.key(other) == key
                and not _are_equal(self.samples[other], sample)
            )
        ]

    def change(self, cells: torch.Tensor, values: torch.Tensor) -> LocatedBatch:
        """Return the batch with other ids in some cells."""
        return with_ids(self.found, self.locate, cells, values)


def match(found: LocatedBatch, numbers: Sequence[int], other: LocatedBatch) -> list[int]:
    """Return for each sequence of another batch which of the numbers it is, by its ids.

    Raises:
        ValueError: it has another number of sequences, or one with other ids.
    """
    left: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        left.setdefault(found.key(number), []).append(number)
    if len(other.cells) != len(numbers):
        raise ValueError(
            f"collate_fn made {len(other.cells)} sequences of {len(numbers)} samples, "
            "expected one of each"
        )
    matched = []
    for number in range(len(other.cells)):
        same = left.get(other.key(number))
        if not same:
            raise ValueError(
                f"sequence {number} of a batch that collate_fn made has other ids than its samples"
            )
        matched.append(same.pop(0))
    return matched


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two samples are surely the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_are_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return bool(one == other) if isinstance(one, (int, float, str, bytes)) else one is other


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device: a tensor, a container of them, or anything that has `to`."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(value, device) for value in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        values = {each.name: getattr(batch, each.name) for each in fields(batch) if each.init}
        return replace(batch, **{name: to_device(each, device) for name, each in values.items()})
    return batch
