"""Which batches the float levels run: the telling ones, then random ones by a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqpack_cli.verification.structure import BatchStatistics


def choose_batches(
    batches: Sequence[BatchStatistics], *, num_batches: int | None, seed: int
) -> list[int]:
    """Choose batches by index, in rising order.

    Args:
        num_batches: how many at most; None takes all.
        seed: of the random ones.

    Returns:
        Among them, as far as num_batches allows, the batch with the longest sequence, the most
        uneven one, one of a single row, and the shortest.
    """
    if num_batches is None or num_batches >= len(batches):
        return sorted(batch.index for batch in batches)
    telling = [
        max(batches, key=lambda batch: batch.longest),
        max(batches, key=lambda batch: batch.longest - batch.shortest),
        min(batches, key=lambda batch: batch.num_rows - batch.num_filler_rows),
        min(batches, key=lambda batch: batch.longest),
    ]
    chosen = list(dict.fromkeys(batch.index for batch in telling))[:num_batches]
    others = [batch.index for batch in batches if batch.index not in set(chosen)]
    num_random = num_batches - len(chosen)
    drawn = np.random.default_rng(seed).choice(others, size=num_random, replace=False)
    return sorted([*chosen, *drawn.tolist()])
