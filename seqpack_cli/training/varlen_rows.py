"""Sequences -> a varlen batch: one row, or rows of one length, as `pack` lays them out.

The sequences of a planned batch know their rows. Others fill one row after another: a sequence that
does not fit into the rest of a row begins the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqpack_cli.batching.plan import Limits
from seqpack_cli.batching.rows import round_up
from seqpack_cli.errors import check_positive
from seqpack_cli.ranges import copy_ranges
from seqpack_cli.shards.layouts import Geometry, check_fits, refuse
from seqpack_cli.shards.shared_rows import VarlenArrays, VarlenBatch
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.training.labels import IGNORED
from seqpack_cli.training.token_sequences import NO_ROW, TokenSequences

FILLS = {TARGETS: 0}  # in the padding of other columns per token: IGNORED


@dataclass(frozen=True)
class RowShape:
    """The rows of a batch, and what fills them up.

    Raises:
        ValueError: a number is out of range, or has no effect.
    """

    row_length: int | None = None  # None: one row, as long as its sequences
    num_rows: int | None = None  # None: as many as needed
    align_sequences: int = 1  # lengths are rounded up to it
    pad_id: int = 0

    def __post_init__(self) -> None:
        for name in ("row_length", "num_rows", "align_sequences"):
            check_positive(name, getattr(self, name))
        if self.pad_id < 0:
            raise ValueError(f"pad_id is {self.pad_id}, expected at least 0")
        if self.row_length is None:
            if self.num_rows is not None:
                raise ValueError(f"num_rows is {self.num_rows}, expected None without row_length")
        elif self.row_length % self.align_sequences:
            raise ValueError(
                f"row_length is {self.row_length}, expected a multiple of align_sequences "
                f"{self.align_sequences}"
            )


def make_varlen_batch(sequences: TokenSequences, shape: RowShape) -> VarlenBatch:
    """Lay sequences out in rows.

    Raises:
        ValueError: one is empty, or they do not fit the rows, or the ids' dtype cannot hold pad_id.
    """
    lengths, row_length = sequences.lengths, shape.row_length
    refuse(lengths < 1, lambda row: f"expected no empty sequence, found one in row {row}")
    batch = VarlenBatch(
        sequences.ids,
        lengths,
        sequences.original_indices,
        sequences.piece_starts,
        {**sequences.columns, **sequences.token_columns},
        None if row_length is None else _choose_rows(sequences, row_length, shape),
        row_length,
        shape.align_sequences,
    )
    if not batch.has_padding:
        return batch
    begins = np.cumsum(lengths) - lengths
    num_cells = int(round_up(lengths, shape.align_sequences).sum())
    if batch.row_indices is not None and row_length is not None:
        num_rows = shape.num_rows or int(batch.row_indices[-1]) + 1
        num_cells = num_rows * row_length
        geometry = Geometry(num_rows=num_rows, row_length=row_length, multiple=batch.multiple)
        tensors = {"lengths": lengths, "row_indices": batch.row_indices}
        tensors["sequence_offsets"] = np.array([0, len(lengths)])
        tensors["data_offsets"] = np.array([0, num_cells])
        VarlenArrays(tensors, geometry).check_rows()

    def lay_out(values: np.ndarray, fill: int) -> np.ndarray:
        check_fits(values.dtype, "padding_value is", fill)
        cells = np.full(num_cells, fill, values.dtype)
        copy_ranges(values, begins, cells, batch.starts, lengths)
        return cells

    laid_out = replace(batch, data=lay_out(sequences.ids, shape.pad_id))
    for name, values in sequences.token_columns.items():
        cells = lay_out(values, FILLS.get(name, IGNORED))
        laid_out.columns[name] = cells.reshape(laid_out.shape)
    return laid_out


def _choose_rows(sequences: TokenSequences, row_length: int, shape: RowShape) -> np.ndarray:
    """Return the row of each sequence: those of the plan, or one after another, int64[B]."""
    if (sequences.row_indices != NO_ROW).all():
        return sequences.row_indices
    lengths = sequences.lengths
    too_long = lengths > row_length
    if too_long.any():
        number = int(too_long.argmax())
        raise ValueError(
            f"sequence {number} has {lengths[number]:,} ids, expected at most row_length "
            f"{row_length:,}"
        )
    offsets = Limits(max_tokens=row_length, multiple=shape.align_sequences).cut(lengths)
    num_rows = len(offsets) - 1
    if shape.num_rows is not None and num_rows > shape.num_rows:
        raise ValueError(
            f"the sequences take {num_rows:,} rows of {row_length:,} cells, expected at most "
            f"num_rows {shape.num_rows:,}"
        )
    return np.repeat(np.arange(num_rows), np.diff(offsets))
