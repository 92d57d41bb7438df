"""Which batches the float levels run: the telling ones, then random ones by a seed."""

from __future__ import annotations

import numpy as np

from seqpack_cli.verification.integers.batch_table import BatchTable


def choose_batches(batches: BatchTable, *, num_batches: int | None, seed: int) -> list[int]:
    """Choose batches by index, in rising order.

    Args:
        num_batches: how many at most; None takes all.
        seed: of the random ones.

    Returns:
        Among them, as far as num_batches allows, the most uneven batch, the one with the longest
        sequence, one of a single row, the shortest, and one of several equal rows, which torch
        computes in another way.
    """
    if num_batches is None or num_batches >= len(batches):
        return [int(index) for index in batches.index]
    rows = batches.num_rows - batches.num_filler_rows
    unevenness = batches.longest - batches.shortest
    telling = [
        unevenness.argmax(),
        batches.longest.argmax(),
        rows.argmin(),
        batches.longest.argmin(),
        ((unevenness == 0) & (rows > 1)).argmax(),
    ]
    chosen = list(dict.fromkeys(int(place) for place in telling))[:num_batches]
    others = np.delete(np.arange(len(batches)), chosen)
    num_random = num_batches - len(chosen)
    drawn = np.random.default_rng(seed).choice(others, size=num_random, replace=False)
    places = np.sort(np.concatenate([np.array(chosen, np.int64), drawn]))
    return [int(index) for index in batches.index[places]]
