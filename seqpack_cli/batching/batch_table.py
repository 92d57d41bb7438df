"""The numbers of batches, in columns: what a plan says of them, or what was measured in shards.

A row of the table stands for batches that are alike and follow one another, `counts` of them.
Sorted by length, most neighbours are alike: of a thousand million sequences of a few thousand
lengths some thousand rows are left. Where every batch is another, a row is one batch, at 56 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

import numpy as np

from seqpack_cli.ranges import to_offsets


def _empty() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class BatchTable:
    """Batches, all columns int64[rows of the table]; those with a default may be left empty."""

    starts: np.ndarray  # of the first batch: its first row, in the order of the plan or shards
    counts: np.ndarray  # batches that are alike, one behind the other
    num_rows: np.ndarray  # of a batch, filler rows too
    num_filler_rows: np.ndarray  # empty rows behind the others
    num_tokens: np.ndarray
    num_cells: np.ndarray  # tokens, and padding where there is some
    longest: np.ndarray
    # Measured where somebody asks:
    index: np.ndarray = field(default_factory=_empty)  # number of the first batch
    shortest: np.ndarray = field(default_factory=_empty)  # of rows that hold a sequence
    # Filled in where sequences are split:
    num_later_pieces: np.ndarray = field(default_factory=_empty)  # rows that continue a sequence
    num_split_sequences: np.ndarray = field(default_factory=_empty)  # whose second piece is here

    @classmethod
    def of_batches(
        cls, lengths: np.ndarray, batch_offsets: np.ndarray, *, first_row: int = 0
    ) -> BatchTable:
        """Return the table of batches without filler or padding, a row for each.

        Args:
            lengths: of all rows.
            batch_offsets: int64[batches + 1], where in lengths each batch begins.
            first_row: how many rows come before these.
        """
        starts, num_rows = batch_offsets[:-1], np.diff(batch_offsets)
        num_tokens = longest = _empty()
        if len(starts):
            rows = lengths[: batch_offsets[-1]]
            num_tokens = np.add.reduceat(rows, starts, dtype=np.int64)
            longest = np.maximum.reduceat(rows, starts).astype(np.int64)
        return cls(
            starts=starts + first_row,
            counts=np.ones_like(num_rows),
            num_rows=num_rows,
            num_filler_rows=np.zeros_like(num_rows),
            num_tokens=num_tokens,
            num_cells=num_tokens,
            longest=longest,
        )

    @classmethod
    def join(cls, tables: Sequence[BatchTable]) -> BatchTable:
        """Put tables one behind another; of none, return an empty one."""
        if len(tables) == 1:
            return tables[0]
        columns = [column.name for column in fields(cls)]
        return cls(
            **{
                name: np.concatenate([_empty(), *(getattr(table, name) for table in tables)])
                for name in columns
            }
        )

    def __len__(self) -> int:
        """Return the number of rows of the table."""
        return len(self.counts)

    @property
    def num_batches(self) -> int:
        """Return the number of batches."""
        return int(self.counts.sum())

    @property
    def num_real_rows(self) -> np.ndarray:
        """Return the rows of a batch that hold a sequence, or a piece of one."""
        num_rows: np.ndarray = self.num_rows - self.num_filler_rows
        return num_rows

    @property
    def num_sequences(self) -> np.ndarray:
        """Return the sequences that begin in a batch: all but later pieces of split ones."""
        num_sequences = self.num_real_rows
        if len(self.num_later_pieces):
            num_sequences = num_sequences - self.num_later_pieces
        return num_sequences

    @property
    def widths(self) -> np.ndarray:
        """Return the columns of each rectangle; it means nothing where rows are not padded."""
        widths: np.ndarray = self.num_cells // self.num_rows
        return widths

    @property
    def padding_ratios(self) -> np.ndarray:
        """Return the share of each batch's cells that hold no token, float64."""
        ratios: np.ndarray = 1 - self.num_tokens / np.maximum(self.num_cells, 1)
        return ratios

    @property
    def padding_ratio(self) -> float:
        """Return the share of all cells that hold no token."""
        return 1 - self.add_up(self.num_tokens) / max(self.add_up(self.num_cells), 1)

    def add_up(self, column: np.ndarray) -> int:
        """Return the sum of a column over all batches, 0 for one that is left empty."""
        return int((column * self.counts).sum()) if len(column) else 0

    def take(self, rows: np.ndarray | slice) -> BatchTable:
        """Return some rows of the table, given as bool, as places or as a slice."""
        return self._apply(lambda column: column[rows])

    def expand(self) -> BatchTable:
        """Return the same batches, a row for each."""
        table = self._apply(lambda column: np.repeat(column, self.counts))
        numbers = np.arange(len(table)) - np.repeat(to_offsets(self.counts)[:-1], self.counts)
        return table._skip(numbers, np.ones(len(table), np.int64))

    def cut(self, cuts: Sequence[int]) -> list[BatchTable]:
        """Return the batches between neighbouring cuts.

        Args:
            cuts: rising, each a number of batches that are before it in this table.
        """
        offsets = to_offsets(self.counts)
        firsts = (np.searchsorted(offsets, cuts, "right") - 1).tolist()
        ends = np.searchsorted(offsets, cuts, "left").tolist()
        tables = []
        for place, (first, last) in enumerate(pairwise(cuts)):
            rows = slice(firsts[place], ends[place + 1] * (last > first))
            begins = np.maximum(offsets[:-1][rows], first)
            counts = np.minimum(offsets[1:][rows], last) - begins
            tables.append(self.take(rows)._skip(begins - offsets[:-1][rows], counts))
        return tables

    def _apply(self, change: Callable[[np.ndarray], np.ndarray]) -> BatchTable:
        """Change every column but those that are left empty."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return BatchTable(
            **{name: change(column) if len(column) else column for name, column in columns.items()}
        )

    def _skip(self, num_skipped: np.ndarray, counts: np.ndarray) -> BatchTable:
        """Return so many batches of each row of the table, behind the skipped ones."""
        return replace(
            self,
            starts=self.starts + num_skipped * self.num_real_rows,
            counts=counts,
            index=self.index + num_skipped[: len(self.index)],
        )
