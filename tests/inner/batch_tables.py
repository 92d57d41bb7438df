"""Batch tables written and read with one batch per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqpack_cli.batching.plan import BatchTable


class BatchNumbers(NamedTuple):
    """One batch of a table."""

    index: int
    num_rows: int
    longest: int
    shortest: int
    num_tokens: int
    num_padding_cells: int
    num_filler_rows: int = 0
    num_sequences: int = 0
    num_split_sequences: int = 0


def make_table(batches: Sequence[BatchNumbers]) -> BatchTable:
    """Make a batch table of batches."""
    columns = {
        name: np.array([getattr(batch, name) for batch in batches], np.int64)
        for name in BatchNumbers._fields
    }
    columns["num_cells"] = columns["num_tokens"] + columns.pop("num_padding_cells")
    num_real_rows = columns["num_rows"] - columns["num_filler_rows"]
    columns["num_later_pieces"] = num_real_rows - columns.pop("num_sequences")
    ends = np.cumsum(columns["num_rows"])
    counts = np.ones_like(ends)
    return BatchTable(starts=ends - columns["num_rows"], counts=counts, **columns)


def list_batches(table: BatchTable) -> list[BatchNumbers]:
    """Return the batches of a table."""
    columns = {name: getattr(table, name, None) for name in BatchNumbers._fields}
    columns["num_padding_cells"] = table.num_cells - table.num_tokens
    if not len(table.num_split_sequences):
        columns["num_split_sequences"] = np.zeros_like(table.num_rows)
    return [BatchNumbers(*row) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
