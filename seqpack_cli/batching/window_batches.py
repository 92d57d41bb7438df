"""Plan batches from a stream of lengths, sorted by length inside windows or not at all.

Batches are cut while the lengths are read, so memory holds a few windows, one batch, and 56 bytes
for each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.limits import Limits
from seqpack_cli.limits import LIMITS


def cut_windows(blocks: Iterable[np.ndarray], window: int | None, limits: Limits) -> BatchTable:
    """Cut a stream of lengths into batches; return a table with one row per batch.

    Args:
        blocks: the lengths of the kept sequences in any number of arrays, int32.
        window: sort each run of this many sequences by length; None sorts none.
    """
    pieces, start = [], 0
    waiting, num_waiting = [np.empty(0, np.int32)], 0  # the unfinished batch comes first
    for block in _sort_windows(blocks, window):
        waiting.append(block)
        num_waiting += len(block)
        if num_waiting < len(waiting[0]):
            continue  # or a long batch would be copied with every block
        lengths = np.concatenate(waiting)
        offsets = limits.cut(lengths)
        pieces.append(BatchTable.of_batches(lengths, offsets[:-1], first_row=start))
        waiting, num_waiting = [lengths[offsets[-2] :]], 0
        start += int(offsets[-2])
    lengths = np.concatenate(waiting)
    if len(lengths):
        pieces.append(BatchTable.of_batches(lengths, limits.cut(lengths), first_row=start))
    return BatchTable.join(pieces)


def _sort_windows(blocks: Iterable[np.ndarray], window: int | None) -> Iterator[np.ndarray]:
    step = window or 1
    size = max(LIMITS.rows_per_block // step, 1) * step
    for lengths in _gather(blocks, size):
        if window is None:
            yield lengths
            continue
        num_sorted = len(lengths) // window * window
        windows = -lengths
        windows[:num_sorted].reshape(-1, window).sort(axis=1)
        windows[num_sorted:].sort()
        yield -windows


def _gather(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Join blocks into arrays of exactly `size` entries, the last one shorter."""
    waiting: list[np.ndarray] = []
    num_waiting = 0
    for block in blocks:
        waiting.append(block)
        num_waiting += len(block)
        if num_waiting >= size:
            joined = np.concatenate(waiting)
            num_ready = num_waiting // size * size
            for start in range(0, num_ready, size):
                yield joined[start : start + size]
            waiting, num_waiting = [joined[num_ready:]], num_waiting - num_ready
    if num_waiting:
        yield np.concatenate(waiting)
