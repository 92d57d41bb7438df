"""The `packed` layout: a batch time step by time step, as in torch's PackedSequence.

Row b's token at step t lies at `starts[t] + b`, where `starts` is the sum of `batch_sizes` before
each step. No rectangle is ever made: memory grows with the tokens, however uneven the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from seqpack_cli.shards.layouts import AFTER, BEFORE, NO_CUTS, describe_fields
from seqpack_cli.shards.time_steps import (
    check_batch_sizes,
    check_lengths,
    count_alive,
)
from seqpack_cli.tokens.kinds import Values


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Sequences of one batch, longest first."""

    num_filler_rows: ClassVar[int] = 0
    piece_starts: ClassVar[None] = None

    data: np.ndarray  # [S], time step by time step
    batch_sizes: np.ndarray  # int64[T], rows alive at each step
    lengths: np.ndarray  # int64[B]
    original_indices: np.ndarray | None = None  # int64[B], of the token store
    columns: dict[str, Values] = field(default_factory=dict)
    # int64[B], of the decoder's side of pairs: which row of the encoder's batch is of the same
    # document.
    encoder_rows: np.ndarray | None = None

    __repr__ = describe_fields

    @property
    def num_steps(self) -> int:
        """Length of the longest row."""
        return len(self.batch_sizes)

    @property
    def first_steps(self) -> np.ndarray:
        """The step of each row's first token, int64[B]: 0."""
        return np.zeros(len(self.lengths), np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of data."""
        return self.data.shape

    def rows(self) -> list[np.ndarray]:
        """Return the sequences in row order."""
        steps = np.cumsum(self.batch_sizes) - self.batch_sizes
        return [self.data[steps[:length] + row] for row, length in enumerate(self.lengths)]

    def row(self, index: int) -> np.ndarray:
        """Return the sequence of one row; the batch must have been checked."""
        row: np.ndarray = self.data[self.find_cells(index)]
        return row

    def find_cells(self, row: int) -> np.ndarray:
        """Return where the tokens of a row lie in data, int64[length]."""
        alive = self.batch_sizes[: self.lengths[row]]
        cells: np.ndarray = np.cumsum(alive) - alive + row
        return cells

    def follow(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Return for each cell the value at the next token of its row, fill if there is none.

        Row j has place j in every step, and no step has more rows than the one before.
        """
        followed = np.full(len(values), fill, np.int64)
        first = int(self.batch_sizes[0])
        cells = np.arange(first, len(values))
        cells -= np.repeat(self.batch_sizes[:-1], self.batch_sizes[1:])
        followed[cells] = values[first:]
        return followed

    def find_cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return no cells: no row goes on in the next batch."""
        return NO_CUTS

    def find_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of the first and of the last token of each row, int64[B]."""
        rows, starts = np.arange(len(self.lengths)), np.cumsum(self.batch_sizes) - self.batch_sizes
        return rows, starts[self.lengths - 1] + rows

    def extend(self, *, before: bool, after: bool) -> PackedBatch:
        """Return rows with a token more before or after them; data are the cells of these rows.

        The cells of the new tokens are BEFORE and AFTER. Each step has the tokens of the rows alive
        in it, then AFTER for those that have just ended.
        """
        num_rows, num_ids = len(self.lengths), len(self.data)
        batch_sizes = np.concatenate([np.full(before + after, num_rows), self.batch_sizes])
        starts = (np.cumsum(batch_sizes) - batch_sizes)[before : before + self.num_steps]
        shifts = starts - (np.cumsum(self.batch_sizes) - self.batch_sizes)
        cells = np.full(num_ids + (before + after) * num_rows, AFTER)
        cells[: before * num_rows] = BEFORE
        cells[np.arange(num_ids) + np.repeat(shifts, self.batch_sizes)] = np.arange(num_ids)
        lengths = self.lengths + before + after
        return replace(self, data=cells, batch_sizes=batch_sizes, lengths=lengths)

    def shorten(self) -> PackedBatch:
        """Return rows without their last token; data are the cells of these rows.

        All rows must have two tokens.
        """
        sizes = self.batch_sizes
        cells = np.arange(sizes[0], len(self.data)) - np.repeat(sizes[:-1], sizes[1:])
        return replace(self, data=cells, batch_sizes=sizes[1:], lengths=self.lengths - 1)

    def with_ids(self, ids: np.ndarray, columns: dict[str, Values]) -> PackedBatch:
        """Return the same rows with other ids, [S], and columns."""
        return replace(self, data=ids, columns=columns)

    def without_filler(self) -> PackedBatch:
        """Return the batch: it has no filler."""
        return self

    def describe_shape(self) -> dict[str, Any]:
        """Return the fields that only this layout has."""
        return {"batch_sizes": self.batch_sizes.tolist()}

    def check(self, *, pad_id: int) -> None:
        """Raise ValueError if batch_sizes, lengths and data contradict each other."""
        check_lengths(self.lengths)
        found, longest = self.batch_sizes, int(self.lengths[0])
        if len(found) != longest:  # before count_alive, whose memory grows with the longest
            raise ValueError(f"{len(found)} batch_sizes, the longest row has {longest} ids")
        expected = count_alive(self.lengths)
        if not np.array_equal(found, expected):
            step = int((found != expected).argmax())
            raise ValueError(
                f"batch_sizes[{step}] is {found[step]}, but {expected[step]} rows are longer "
                f"than {step}"
            )
        check_batch_sizes(found, num_ids=len(self.data))
        if self.encoder_rows is not None:
            check_encoder_rows(self.encoder_rows)

    def has_right_padding(self, pad_id: int, values: np.ndarray | None = None) -> bool:
        """Return True: there is no padding."""
        return True

    def count_padding(self) -> int:
        """Return 0: there is no padding."""
        return 0


def check_encoder_rows(rows: np.ndarray) -> None:
    """Raise ValueError unless the rows of the encoder's batch are named once each."""
    wrong = np.sort(rows) != np.arange(len(rows))
    if wrong.any():
        raise ValueError(
            f"encoder_rows does not name row {int(wrong.argmax())} once, expected each of "
            f"{len(rows)} rows once"
        )
