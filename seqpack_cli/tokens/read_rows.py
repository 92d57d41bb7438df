"""Read many sequences of a token store at once, in the order of the disk.

Rows of a shard come from all over the store. Whatever their order, they are read part by part and
in ascending order within each part, so that reads are as sequential as possible.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.ranges import copy_ranges
from seqpack_cli.tokens.token_store import TokenStore


def read_rows(
    store: TokenStore, indices: np.ndarray, lengths: np.ndarray, offsets: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read rows into one array, in the order of the store.

    Args:
        indices: int64[N], the sequence of each row.
        lengths: int64[N], of the rows.
        offsets: where in its sequence each row begins; None: at its start.

    Returns:
        ids [S], and int64[N], where in ids each row begins.
    """
    order = np.argsort(indices, kind="stable")
    indices, lengths = indices[order], lengths[order]  # copy_rows sorts again, which takes no time
    ends = np.cumsum(lengths)
    offsets = None if offsets is None else offsets[order]
    ids = np.empty(int(ends[-1]) if len(ends) else 0, store.dtype)
    copy_rows(store, indices, lengths, ids, ends - lengths, offsets)
    starts = np.empty(len(order), np.int64)
    starts[order] = ends - lengths
    return ids, starts


def copy_rows(
    store: TokenStore,
    indices: np.ndarray,
    lengths: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
    offsets: np.ndarray | None = None,
) -> None:
    """Copy rows into an array, each to its place there.

    Args:
        indices, lengths, offsets: as for read_rows.
        target_starts: int64[N], where in target each row begins.
    """
    order = np.argsort(indices, kind="stable")
    bounds = np.searchsorted(indices[order], store.part_offsets)
    for part in np.flatnonzero(np.diff(bounds)).tolist():
        rows = order[bounds[part] : bounds[part + 1]]
        ids, starts = store.view_part(part)
        source_starts = starts[indices[rows] - store.part_offsets[part]] // ids.itemsize
        if offsets is not None:
            source_starts = source_starts + offsets[rows]
        copy_ranges(ids, source_starts, target, target_starts[rows], lengths[rows])
