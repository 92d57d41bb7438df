"""Batch tables written and read one batch a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqpack_cli.verification.integers.batch_table import BatchTable


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
    """Put batches into the columns of a table."""
    columns = {
        name: np.array([getattr(batch, name) for batch in batches], np.int64)
        for name in BatchNumbers._fields
    }
    columns["num_cells"] = columns["num_tokens"] + columns.pop("num_padding_cells")
    return BatchTable(**columns)


def list_batches(table: BatchTable) -> list[BatchNumbers]:
    """Take the batches out of a table."""
    padding = table.num_cells - table.num_tokens
    columns = [
        padding if name == "num_padding_cells" else getattr(table, name)
        for name in BatchNumbers._fields
    ]
    return [BatchNumbers(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
