"""Which arrays a shard file has, their types and order; those of the rows are made here.

Arrays with the same number of entries per batch share their offsets; arrays without offsets have
one entry per batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from seqpack_cli.batching.shard_rows import ShardRows
from seqpack_cli.files.tensor_file import Tensor, sort_tensors
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.layouts import find_layout
from seqpack_cli.tokens.columns.column import Column

OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "piece_starts": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}


def tensor_names(layout: str, *, filler: bool) -> list[str]:
    """List the arrays of a shard but its columns: all int64 but the last, which holds the ids.

    Args:
        filler: whether batches are filled up with empty rows; adds `num_filler_rows`.
    """
    *arrays, data = find_layout(layout).arrays
    arrays += ["num_filler_rows"] if filler else []
    offsets = dict.fromkeys(OFFSETS_OF[name] for name in [*arrays, data] if name in OFFSETS_OF)
    return [*arrays, *offsets, data]


def tensor_dtypes(
    layout: str, dtype: str, *, filler: bool, columns: Iterable[Column] = ()
) -> dict[str, str]:
    """Return the types of the arrays of a shard by name, in file order.

    Args:
        dtype: of the ids.
    """
    *arrays, data = tensor_names(layout, filler=filler)
    dtypes = dict.fromkeys(arrays, "int64")
    for column in columns:
        dtypes |= column.tensor_dtypes
    dtypes[data] = dtype
    tensors = {name: Tensor(dtype, 0) for name, dtype in dtypes.items()}
    return {name: tensor.dtype for name, tensor in sort_tensors(tensors).items()}


def make_tensors(layout: str, rows: ShardRows, *, filler: bool) -> dict[str, np.ndarray]:
    """Make all arrays of a shard but `data`, int64, in file order.

    Args:
        filler: whether batches are filled up with empty rows.
    """
    num_tokens = np.add.reduceat(rows.lengths, rows.batch_offsets[:-1], dtype=np.int64)
    tensors = {
        "lengths": rows.lengths,
        "original_indices": rows.indices,
        "sequence_offsets": rows.batch_offsets,
        "data_offsets": to_offsets(num_tokens),
        **find_layout(layout).make_arrays(rows),
    }
    names = tensor_names(layout, filler=filler)[:-1]
    return {name: tensors[name].astype(np.int64, copy=False) for name in names}
