"""What one epoch consists of: its batches, their order, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class EpochPlan:
    """The batches of an epoch, before they are dealt to ranks."""

    keys: Sequence[Any]  # what the dataset is asked for, one for each batch
    order: np.ndarray  # int64[batches], numbers of keys
    count_cells: Callable[[], np.ndarray]  # of each batch, int64[batches], where somebody asks


class EpochBatches(Protocol):
    """What an EpochSampler orders: the batches of a ShardDataset, or StoreBatches."""

    fingerprint: str  # the same for the same batches
    is_fixed: bool  # a batch is the same, under the same number, in every epoch

    def plan_epoch(self, seed: int | None) -> EpochPlan:
        """Make the batches of an epoch; without a seed, in the order of the data."""
