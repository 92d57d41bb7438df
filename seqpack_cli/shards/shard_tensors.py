"""Which arrays a shard file has, their types and order; those of the rows are made here.

Arrays with the same number of entries per batch share their offsets; arrays without offsets have
one entry per batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from seqpack_cli.batching.plan import ShardRows
from seqpack_cli.files.tensor_file import Tensor, sort_tensors
from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.layouts import Layout, find_layout
from seqpack_cli.tokens.columns import Column

OFFSETS_OF = {
    "lengths": "sequence_offsets",
    "original_indices": "sequence_offsets",
    "piece_starts": "sequence_offsets",
    "row_indices": "sequence_offsets",
    "encoder_rows": "sequence_offsets",
    "resets": "sequence_offsets",
    "next_ids": "sequence_offsets",
    "batch_sizes": "step_offsets",
    "data": "data_offsets",
}


def tensor_names(layout: str, geometry: Geometry) -> list[str]:
    """List the arrays of a shard but its columns: all int64 but the last, which holds the ids."""
    return _list_names(find_layout(layout, geometry))


def tensor_dtypes(
    layout: str, geometry: Geometry, dtype: str, *, columns: Iterable[Column] = ()
) -> dict[str, str]:
    """Return the types of the arrays of a shard by name, in file order.

    Args:
        dtype: of the ids.
    """
    *arrays, data = tensor_names(layout, geometry)
    dtypes = dict.fromkeys(arrays, "int64")
    for column in columns:
        dtypes |= column.tensor_dtypes
    dtypes[data] = dtype
    tensors = {name: Tensor(dtype, 0) for name, dtype in dtypes.items()}
    return {name: tensor.dtype for name, tensor in sort_tensors(tensors).items()}


def make_tensors(layout: Layout, rows: ShardRows) -> dict[str, np.ndarray]:
    """Make all arrays of a shard but `data` and columns, int64."""
    tensors = {
        "lengths": rows.lengths,
        "original_indices": rows.indices,
        "sequence_offsets": rows.batch_offsets,
        "data_offsets": to_offsets(rows.num_cells),
        **layout.make_arrays(rows),
    }
    return {name: tensors[name].astype(np.int64, copy=False) for name in _list_names(layout)[:-1]}


def _list_names(layout: Layout) -> list[str]:
    *arrays, data = layout.arrays
    offsets = dict.fromkeys(OFFSETS_OF[name] for name in [*arrays, data] if name in OFFSETS_OF)
    return [*arrays, *offsets, data]
