"""Check the sequences of one batch whose rows are shared; each error describes the first fault."""

from __future__ import annotations

import numpy as np

from seqpack_cli.batching.rows import round_up
from seqpack_cli.shards.row_places import place_in_rows


def check_not_empty(lengths: np.ndarray) -> None:
    """Raise ValueError for an empty sequence."""
    if int(lengths.min()) < 1:
        raise ValueError(f"expected no empty sequence, found one in row {int(lengths.argmin())}")


def check_rows(
    lengths: np.ndarray, row_indices: np.ndarray, shape: tuple[int, ...], *, multiple: int = 1
) -> None:
    """Raise ValueError unless sequences fit their rows.

    Args:
        shape: of the rectangle: rows, and cells of a row.
    """
    num_rows, row_length = shape
    wrong = (row_indices < 0) | (row_indices >= num_rows)
    wrong[1:] |= row_indices[1:] < row_indices[:-1]
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(
            f"row_indices[{place}] is {row_indices[place]}, expected ascending numbers below "
            f"{num_rows}"
        )
    limited = round_up(np.minimum(lengths, row_length + 1), multiple)
    too_long = place_in_rows(limited, row_indices) + limited > row_length
    if too_long.any():
        row = int(row_indices[too_long.argmax()])
        raise ValueError(f"row {row}: its sequences take more than the {row_length} cells of a row")


def check_padding(data: np.ndarray, mask: np.ndarray, pad_id: int) -> None:
    """Raise ValueError if a cell outside of the mask does not hold pad_id."""
    wrong = ~mask & (data != pad_id)
    if wrong.any():
        cell = int(wrong.argmax())
        raise ValueError(f"cell {cell} is padding and holds {data[cell]}, expected {pad_id}")
