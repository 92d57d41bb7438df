"""The columns beside one sequence of a store or one row of a batch, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import Slices, TokenStore, read_rows, read_values


def read_sequence_values(store: TokenStore, index: int) -> dict[str, Any]:
    """Return the value of each column for a sequence; a list, one per token, where it has many.

    Raises:
        FolderError: a column holds an impossible value.
    """
    rows = Slices(np.array([index]), np.array([len(store[index])]))
    found: dict[str, Any] = {}
    for name, column in store.columns.items():
        if column.is_per_token:
            found[name] = column.spell(read_rows(store, rows, column=name)[0])
        else:
            found[name] = column.spell(read_values(store, rows.indices, name))[0]
    return found


def read_row_values(batch: Batch, columns: Mapping[str, Column], row: int) -> dict[str, Any]:
    """Return the value of each column for a row of a batch, as `read_sequence_values` does."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        values = batch.columns[name]
        if column.is_per_token:
            cells = np.asarray(values).ravel()[batch.find_cells(row)]
            found[name] = column.spell(cells)
        else:
            found[name] = column.spell(values[row : row + 1])[0]
    return found


def join_pieces(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of a sequence from those of its pieces, in their order."""
    joined = dict(pieces[0])
    for name, value in joined.items():
        if isinstance(value, list):
            joined[name] = [tag for piece in pieces for tag in piece[name]]
    return joined
