"""Sort the rows of rectangles, longest first, as torch's functions take them."""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.order import sort_within_batches
from seqpack_cli.ranges import copy_ranges, to_offsets
from seqpack_cli.shards.arrays import ShardArrays


def sort_rows(arrays: ShardArrays) -> ShardArrays:
    """Return batches with their rows longest first, ties in their order; without columns.

    Only padded rows of a decoder are copied: all others are sorted, or share rows.
    """
    if arrays.rules.needs_sorted_rows or not arrays.geometry.is_decoder:
        return arrays
    tensors, lengths = arrays.tensors, arrays.tensors["lengths"].copy()
    order, offsets = np.arange(len(lengths)), tensors["sequence_offsets"]
    sort_within_batches(order, [lengths], offsets)
    num_rows = np.diff(offsets)
    widths = np.repeat(np.diff(tensors["data_offsets"]) // num_rows, num_rows)
    starts, data = to_offsets(widths)[:-1], np.empty_like(tensors["data"])
    copy_ranges(tensors["data"], starts[order], data, starts, widths)
    indices = tensors["original_indices"][order]
    changed = {"lengths": lengths, "original_indices": indices, "data": data}
    return arrays.with_tensors({**tensors, **changed}, {})
