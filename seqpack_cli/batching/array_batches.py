"""Plan batches from the lengths of all sequences, held in memory as arrays.

Needed where counts of lengths are not enough: for shuffled sequences, and for buckets without one
sort over the whole store. Besides the lengths it takes at most 32 bytes per sequence, and keeps 12.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.length_order import length_order, sort_within_batches
from seqpack_cli.batching.limits import Limits, find_limits
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.batching.row_orders import ArrayOrder
from seqpack_cli.batching.row_ranges import Rows
from seqpack_cli.batching.shuffle import shuffled
from seqpack_cli.ranges import to_offsets


def cut_array(
    lengths: np.ndarray, kept: LengthCounts, options: PackOptions, limits: list[Limits]
) -> tuple[ArrayOrder, list[BatchTable]]:
    """Order the kept sequences, and cut each bucket into batches.

    Args:
        lengths: int32, one per sequence of the store.
        limits: one per bucket, the largest bucket first.
    """
    order = choose_order(lengths, kept, options)
    if options.order == "length":
        order = order[length_order(lengths[order], window=options.window)]
    order, starts = _sort_by_bucket(order, lengths, limits)
    lengths = lengths[order]
    tables = []
    for (start, end), limit in zip(pairwise(starts.tolist()), limits, strict=True):
        offsets = limit.cut(lengths[start:end])
        tables.append(BatchTable.of_batches(lengths[start:end], offsets, first_row=start))
        if options.order == "none" or options.window is not None:
            sort_within_batches(order[start:end], lengths[start:end], offsets)
    return ArrayOrder(Rows(order, lengths)), tables


def choose_order(lengths: np.ndarray, kept: LengthCounts, options: PackOptions) -> np.ndarray:
    """Return the indices of the kept sequences, ascending or shuffled, int64[N]."""
    if not len(kept.lengths):
        return np.empty(0, np.int64)
    is_kept = (lengths >= kept.lengths[-1]) & (lengths <= kept.lengths[0])
    if not options.shuffle:
        return np.flatnonzero(is_kept)
    order = shuffled(len(lengths), seed=options.seed)
    return order if is_kept.all() else order[is_kept[order]]


def _sort_by_bucket(
    order: np.ndarray, lengths: np.ndarray, limits: list[Limits]
) -> tuple[np.ndarray, np.ndarray]:
    """Group the rows by bucket; return the new order and the first row of each bucket."""
    if len(limits) == 1:
        return order, np.array([0, len(order)])
    numbers = find_limits(lengths[order], limits).astype(np.uint16)
    starts = to_offsets(np.bincount(numbers, minlength=len(limits)))
    if (numbers[1:] < numbers[:-1]).any():
        order = order[np.argsort(numbers, kind="stable")]
    return order, starts
