"""What a batch of a reader must be, beside the page's reading of it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from oracle.batches import PageBatch
from oracle.stores import PER_TOKEN

from seqpack_cli import Batch, ShardSet


def flatten(values: Any) -> list[Any]:
    """Return the entries of a rectangle one after another."""
    return [cell for row in values for cell in row]


def check_batch(shards: ShardSet, batch: Batch, page: PageBatch) -> None:
    """Compare a batch with the page's reading of it."""
    lengths = page.arrays["lengths"].tolist()
    for name in [name for name in page.arrays if not name.startswith("column.")]:
        expected = page.arrays[name]
        if name == "widths":
            assert batch.shape[1] == expected[0]
        elif name == "num_filler_rows":
            assert batch.num_filler_rows == expected[0]
        else:
            found = getattr(batch, name)
            assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist()), name
    assert batch.num_filler_rows == lengths.count(0)
    assert [row.tolist() for row in batch.rows()] == page.rows
    assert [batch.row(row).tolist() for row in range(len(lengths))] == page.rows
    assert prod(batch.shape) == len(batch.data)
    assert batch.count_padding() == len(batch.data) - sum(lengths)
    assert list(batch.columns) == list(shards.columns) == list(page.columns)
    for name, column in shards.columns.items():
        values, spelled = batch.columns[name], column.spell(batch.columns[name])
        if column.kind in PER_TOKEN:
            assert values.shape == batch.shape  # type: ignore[union-attr]
            spelled = flatten(spelled) if len(batch.shape) > 1 else spelled
        assert spelled == page.columns[name], name
    check_own(batch, page.cells, lengths)


def check_own(batch: Any, cells: list[list[int]], lengths: list[int]) -> None:
    """Check what only the batches of a layout have."""
    size, starts = len(batch.data), [some[0] for some in cells if some]
    is_token = np.zeros(size, bool)
    is_token[flatten(cells)] = True
    kind = type(batch).__name__
    if kind == "PaddedBatch":
        assert np.array_equal(batch.ids.reshape(-1), batch.data)
        assert batch.mask.tolist() == is_token.reshape(batch.shape).tolist()
        kept = batch.without_filler()
        assert len(kept.ids) == len(kept.lengths) == len(lengths) - lengths.count(0)
        assert kept.num_filler_rows == 0
        assert {len(values) for values in kept.columns.values()} <= {len(kept.lengths)}
        assert kept.original_indices.tolist() == batch.original_indices.tolist()[: len(kept.ids)]
        assert [row.tolist() for row in kept.rows()] == [
            row.tolist() for row in batch.rows() if len(row)
        ]
    if kind == "VarlenBatch":
        assert batch.starts.tolist() == starts
        sums = [sum(lengths[:end]) for end in range(len(lengths) + 1)]
        assert batch.cu_seqlens.dtype == np.int32
        assert batch.cu_seqlens.tolist() == sums
        has_padding = size > sum(lengths)
        padded = [*starts, size] if has_padding else None
        found = batch.cu_seqlens_padded
        assert (None if found is None else found.tolist()) == padded
        positions = np.zeros(size, int)
        positions[flatten(cells)] = [step for length in lengths for step in range(length)]
        assert batch.position_ids.tolist() == positions.reshape(batch.shape).tolist()
    if kind == "StreamsBatch":
        resets = np.zeros(size, bool)
        resets[starts] = batch.resets == 1
        assert batch.is_reset.tolist() == resets.reshape(batch.shape).tolist()
