"""Lengths -> the order in which sequences are batched: longest first, ties by index.

A stable sort of our own: torch's `enforce_sorted=False` sorts unstably, so its indices may change
with version and device. 16-bit keys are sorted by radix, in time linear in the sequences.
"""

from __future__ import annotations

import numpy as np


def length_order(lengths: np.ndarray) -> np.ndarray:
    """Give the indices of sequences, longest first, equal ones in their own order.

    Args:
        lengths: integers, one per sequence.

    Returns:
        int64[N].

    >>> length_order(np.array([2, 5, 5, 1])).tolist()
    [1, 2, 0, 3]
    """
    if not len(lengths):
        return np.empty(0, np.int64)
    longest = int(lengths.max())
    dtype = np.uint16 if longest <= np.iinfo(np.uint16).max else np.int64
    below_longest = (longest - lengths.astype(np.int64)).astype(dtype)
    return np.argsort(below_longest, kind="stable")
