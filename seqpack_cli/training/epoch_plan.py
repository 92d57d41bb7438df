"""The plan of one epoch: its batches, their order, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


class EpochBatches(Protocol):
    """What an EpochSampler orders: a ShardDataset, StoreBatches, or a class of your own."""

    fingerprint: str  # the same for the same batches
    is_fixed: bool  # whether the batches and their numbers are the same in every epoch

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Plan an epoch, shuffled by a seed; None keeps the order of the data."""
