"""All lengths -> which sequence goes into which batch, and what is left out and why.

A pure function of the lengths and the options, so that every worker and every later run makes the
same batches. It holds 8 bytes a sequence for the order, and the sort about 16 more while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from seqpack_cli.batching.batches import cut_batches, is_full
from seqpack_cli.batching.length_order import length_order


@dataclass(frozen=True)
class BatchOptions:
    """What decides the batches."""

    batch_size: int | None = 64  # rows at most
    max_tokens: int | None = None
    padded: bool = False  # whether max_tokens counts the cells of a rectangle
    min_length: int | None = None
    max_length: int | None = None
    last_batch: str = "keep"  # or "drop"


@dataclass
class BatchPlan:
    """The batches of a whole token store."""

    order: np.ndarray  # int64[kept sequences], batch after batch
    batch_offsets: np.ndarray  # int64[batches + 1], into order
    num_dropped_sequences: dict[str, int] = field(default_factory=dict)  # by reason
    num_dropped_tokens: dict[str, int] = field(default_factory=dict)

    @property
    def num_batches(self) -> int:
        """Count the batches."""
        return len(self.batch_offsets) - 1


def plan_batches(lengths: np.ndarray, options: BatchOptions) -> BatchPlan:
    """Choose the sequences, order them, and cut the order into batches.

    Args:
        lengths: integers, one per sequence of the store.

    Raises:
        ValueError: a sequence that is kept is longer than max_tokens.
    """
    plan = BatchPlan(np.empty(0, np.int64), np.zeros(1, np.int64))
    kept = np.ones(len(lengths), bool)
    if options.min_length is not None:
        _drop(plan, "min_length", lengths, kept & (lengths < options.min_length))
        kept &= lengths >= options.min_length
    if options.max_length is not None:
        _drop(plan, "max_length", lengths, kept & (lengths > options.max_length))
        kept &= lengths <= options.max_length
    chosen = np.flatnonzero(kept)
    order = chosen[length_order(lengths[chosen])]
    batch_size, max_tokens, padded = options.batch_size, options.max_tokens, options.padded
    offsets = cut_batches(
        lengths[order], batch_size=batch_size, max_tokens=max_tokens, padded=padded
    )
    if options.last_batch == "drop" and len(offsets) > 1:
        last = order[offsets[-2] :]
        if not is_full(lengths[last], batch_size=batch_size, max_tokens=max_tokens, padded=padded):
            _drop(plan, "last_batch", lengths, last)
            offsets = offsets[:-1]
            order = order[: offsets[-1]]
    plan.order, plan.batch_offsets = order, offsets
    return plan


def _drop(plan: BatchPlan, reason: str, lengths: np.ndarray, which: np.ndarray) -> None:
    """Count the sequences that a mask or indices choose as dropped."""
    dropped = lengths[which]
    plan.num_dropped_sequences[reason] = len(dropped)
    plan.num_dropped_tokens[reason] = int(dropped.sum(dtype=np.int64))
