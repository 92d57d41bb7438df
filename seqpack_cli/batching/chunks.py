"""Concatenate sequences and cut them every so many tokens, so that every row but the last is full.

A sequence that a cut goes through becomes several pieces. Cutting is all there is: no sequence is
moved, and no token is padding.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.row_ranges import Rows
from seqpack_cli.ranges import to_offsets


def cut_chunks(rows: Rows, capacity: int) -> tuple[Rows, np.ndarray]:
    """Cut rows one after another into chunks of a number of tokens; the last one may be shorter.

    Args:
        rows: whole sequences in any order, none empty.
        capacity: tokens of a chunk, at least 1.

    Returns:
        The pieces, with piece_starts, and int64[chunks + 1], the first piece of each chunk.

    >>> rows, offsets = cut_chunks(Rows(np.array([7, 8]), np.array([3, 4], np.int32)), 5)
    >>> rows.indices.tolist(), rows.piece_starts.tolist(), rows.lengths.tolist()
    ([7, 8, 8], [0, 0, 2], [3, 2, 2])
    >>> offsets.tolist()
    [0, 2, 3]
    """
    begins = to_offsets(rows.lengths)
    total = int(begins[-1])
    cuts = np.arange(0, total, capacity)
    inside = cuts[begins[np.searchsorted(begins, cuts)] != cuts]  # not where a sequence begins
    # both ascend, so a stable sort only merges them
    starts = np.sort(np.concatenate([begins[:-1], inside]), kind="stable")
    lengths = np.diff(starts, append=total).astype(np.int32)
    is_first = np.ones(len(starts), bool)
    is_first[np.searchsorted(starts, inside)] = False
    number = np.cumsum(is_first) - 1  # of its sequence
    pieces = Rows(rows.indices[number], lengths, (starts - begins[:-1][number]).astype(np.int32))
    return pieces, np.append(np.searchsorted(starts, cuts), len(starts))
