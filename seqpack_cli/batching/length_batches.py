"""Plan batches in length order from counts of lengths, without looking at single sequences.

Time and memory grow with the number of distinct lengths, not with the number of sequences.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.batching.length_counts import LengthCounts
from seqpack_cli.batching.limits import Limits, find_limits
from seqpack_cli.ranges import to_offsets


def cut_lengths(kept: LengthCounts, limits: list[Limits]) -> list[BatchTable]:
    """Cut sequences in length order into batches, each bucket by itself.

    Args:
        limits: one per bucket, the largest bucket first.
    """
    bounds = to_offsets(np.bincount(find_limits(kept.lengths, limits), minlength=len(limits)))
    tables, first_row = [], 0
    for (first, last), limit in zip(pairwise(bounds.tolist()), limits, strict=True):
        bucket = kept.take(slice(first, last))
        tables.append(_cut_bucket(bucket, limit, first_row))
        first_row += bucket.num_sequences
    return tables


def _cut_bucket(bucket: LengthCounts, limits: Limits, first_row: int) -> BatchTable:
    starts, num_rows, counts = limits.cut_runs(bucket.lengths, bucket.counts)
    offsets = to_offsets(bucket.counts)
    tokens_before = to_offsets(bucket.lengths * bucket.counts)  # before each distinct length

    def count_before(rows: np.ndarray) -> np.ndarray:
        found = np.searchsorted(offsets[:-1], rows, "right") - 1
        before: np.ndarray = tokens_before[found] + (rows - offsets[found]) * bucket.lengths[found]
        return before

    num_tokens = count_before(starts + num_rows) - count_before(starts)
    return BatchTable(
        starts=starts + first_row,
        counts=counts,
        num_rows=num_rows,
        num_filler_rows=np.zeros_like(starts),
        num_tokens=num_tokens,
        num_cells=num_tokens,
        longest=bucket.lengths[np.searchsorted(offsets, starts, "right") - 1],
    )
