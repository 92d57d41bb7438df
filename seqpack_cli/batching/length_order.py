"""Sort sequences by length: longest first, ties in their original order.

The sort is stable: torch's `enforce_sorted=False` is not, so its indices may change with version
and device. numpy sorts 16-bit keys by radix in linear time; if a sequence is longer than that, the
lower half of each key is sorted first and then the upper half.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.errors import check_positive
from seqpack_cli.limits import LIMITS


def length_order(lengths: np.ndarray, *, window: int | None = None) -> np.ndarray:
    """Return the indices of sequences, longest first, ties in their original order.

    Args:
        lengths: integers, one per sequence.
        window: sort each run of this many sequences by itself; None sorts all together.

    Returns:
        int64[N].

    >>> length_order(np.array([2, 5, 5, 1])).tolist()
    [1, 2, 0, 3]
    >>> length_order(np.array([2, 5, 5, 6]), window=2).tolist()
    [1, 0, 3, 2]
    """
    check_positive("window", window)
    if window is None or window >= len(lengths):
        return _sort(_keys(lengths))
    order = np.arange(len(lengths))
    num_sorted = len(lengths) // window * window
    keys = _keys(lengths)
    windows = order[:num_sorted].reshape(-1, window)
    windows[:] = _sort(keys[:num_sorted].reshape(-1, window))
    windows += np.arange(0, num_sorted, window)[:, None]
    order[num_sorted:] = _sort(keys[num_sorted:]) + num_sorted
    return order


def sort_within_batches(order: np.ndarray, lengths: np.ndarray, batch_offsets: np.ndarray) -> None:
    """Sort the rows of each batch, longest first, in place and stably.

    Args:
        order: one entry per row, batch after batch.
        lengths: of the rows, sorted in place as well.
        batch_offsets: int64[batches + 1], where each batch begins.
    """
    first, num_batches = 0, len(batch_offsets) - 1
    while first < num_batches:
        start = int(batch_offsets[first])
        past = int(np.searchsorted(batch_offsets, start + LIMITS.rows_per_block, "right")) - 1
        last = min(max(past, first + 1), num_batches)
        rows = slice(start, int(batch_offsets[last]))
        batch = np.repeat(np.arange(last - first), np.diff(batch_offsets[first : last + 1]))
        places = np.argsort((batch << 32) - lengths[rows], kind="stable")
        order[rows], lengths[rows] = order[rows][places], lengths[rows][places]
        first = last


def _sort(keys: np.ndarray) -> np.ndarray:
    """Sort unsigned keys of at most 32 bits stably along the last axis; return their indices."""
    order = np.argsort(keys.astype(np.uint16), axis=-1, kind="stable")
    if keys.dtype == np.uint16:
        return order
    upper = np.take_along_axis((keys >> 16).astype(np.uint16), order, -1)
    del keys
    return np.take_along_axis(order, np.argsort(upper, axis=-1, kind="stable"), -1)


def _keys(lengths: np.ndarray) -> np.ndarray:
    """Turn lengths into sort keys, the longest the smallest; uint16 if they fit, else uint32."""
    longest = int(lengths.max(initial=0))
    dtype = np.uint16 if longest <= np.iinfo(np.uint16).max else np.uint32
    keys: np.ndarray = np.subtract(longest, lengths, dtype=dtype, casting="unsafe")
    return keys
