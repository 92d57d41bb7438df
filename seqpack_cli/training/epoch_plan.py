"""The plan of one epoch: its batches, their order, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True)
class EpochPlan:
    """The batches of an epoch, before they are dealt to ranks.

    `count_costs` is called only if options need it: with "tokens" for the cells of each batch,
    tokens and padding, with "attention" for the sum of its squared lengths, or of the squared
    widths of padded rows. It returns int64[batches], the same on every rank.
    """

    keys: Sequence[Any]  # the key of each batch in the dataset
    order: np.ndarray  # int64[batches], numbers of keys
    count_costs: Callable[[str], np.ndarray]  # by the name of a cost
    # Streams of each batch, which the ranks share: all take the same batches, in the order of the
    # data. None: each rank takes batches of its own.
    num_streams: int | None = None

    def find_key(self, number: int, rank: int, world_size: int) -> Any:
        """Return the key of a batch for one rank, or of its streams of the batch."""
        if self.num_streams is None or world_size == 1:
            return self.keys[number]
        share = self.num_streams // world_size
        return StreamSlice(self.keys[number], rank * share, (rank + 1) * share)


class StreamSlice(NamedTuple):
    """The key of some streams of a batch of a ShardDataset: those of one rank."""

    batch: int
    start: int
    stop: int


class EpochBatches(Protocol):
    """What an EpochSampler orders: a ShardDataset, StoreBatches, or a class of your own."""

    fingerprint: str  # the same for the same batches
    is_fixed: bool  # whether the batches and their numbers are the same in every epoch

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Plan an epoch, shuffled by a seed; None keeps the order of the data."""
