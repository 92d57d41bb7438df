"""Many rows of a shard at once, whatever its layout: ids one row after another.

A row of a padded or varlen shard is one range of `data`. One of a packed shard is spread over the
time steps of its batch: the running sum of `batch_sizes` over the whole shard says where each step
lies, so all rows are gathered together, at some 10 ns an id, where one row costs 40 us.
"""

from __future__ import annotations

import numpy as np

from seqpack_cli.ranges import copy_ranges, expand_ranges
from seqpack_cli.shards.shard import Shard


def copy_shard_rows(
    shard: Shard, rows: np.ndarray, target: np.ndarray, target_starts: np.ndarray
) -> None:
    """Copy rows of a shard whose batches were all checked, each to its own place.

    Args:
        rows: int64[N], counted through the shard.
        target: takes the ids, without padding.
        target_starts: int64[N], where in target each row begins.
    """
    tensors = shard.tensors
    lengths, row_offsets = tensors["lengths"][rows], tensors["sequence_offsets"]
    batches = np.searchsorted(row_offsets, rows, "right") - 1
    inside = rows - row_offsets[batches]
    if shard.layout == "packed":
        sizes = tensors["batch_sizes"]
        step_starts = np.cumsum(sizes) - sizes  # of every step of the shard, in data
        steps = expand_ranges(tensors["step_offsets"][batches], lengths)
        cells = step_starts[steps] + np.repeat(inside, lengths)
        target[expand_ranges(target_starts, lengths)] = tensors["data"][cells]
        return
    if shard.layout == "padded":
        widths = tensors["widths"][batches]
        starts = tensors["data_offsets"][batches] + inside * widths
        if shard.padding_side == "left":
            starts += widths - lengths
    else:
        all_lengths = tensors["lengths"]
        starts = (np.cumsum(all_lengths) - all_lengths)[rows]
    copy_ranges(tensors["data"], starts, target, target_starts, lengths)
