"""A table of batch sizes: planned from the lengths of a store, or measured in shards.

A row of the table stands for `counts` equal batches that follow one another. Sorted by length, most
neighbours are equal: a thousand million sequences of a few thousand distinct lengths need a few
thousand rows. If all batches differ, each has its own row of 56 bytes.
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
    """Columns of batch sizes, each int64[rows of the table]; those with a default may be empty."""

    starts: np.ndarray  # first row of the first batch, in the order of the plan or shards
    counts: np.ndarray  # number of equal batches, one after another
    num_rows: np.ndarray  # per batch, including filler rows
    num_filler_rows: np.ndarray  # empty rows at the end of a batch
    num_tokens: np.ndarray
    num_cells: np.ndarray  # tokens and padding
    longest: np.ndarray
    # Only in tables measured in shards:
    index: np.ndarray = field(default_factory=_empty)  # number of the first batch
    shortest: np.ndarray = field(default_factory=_empty)  # of the rows that hold a sequence
    # Only where sequences are split:
    num_later_pieces: np.ndarray = field(default_factory=_empty)  # rows that continue a sequence
    num_split_sequences: np.ndarray = field(default_factory=_empty)  # with their second piece here
    # Only of pairs, beside those of the encoder's side:
    decoder_tokens: np.ndarray = field(default_factory=_empty)
    decoder_cells: np.ndarray = field(default_factory=_empty)
    decoder_longest: np.ndarray = field(default_factory=_empty)

    @classmethod
    def of_batches(
        cls, lengths: np.ndarray, batch_offsets: np.ndarray, *, first_row: int = 0
    ) -> BatchTable:
        """Return a table of batches without filler or padding, with one row per batch.

        Args:
            lengths: of all rows.
            batch_offsets: int64[batches + 1], where in lengths each batch begins.
            first_row: number of rows before these.
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
        """Concatenate tables; without any, return an empty table."""
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
        """Return the number of rows per batch that hold a sequence or a piece of one."""
        num_rows: np.ndarray = self.num_rows - self.num_filler_rows
        return num_rows

    @property
    def num_sequences(self) -> np.ndarray:
        """Return the number of sequences that begin in each batch, without later pieces."""
        num_sequences = self.num_real_rows
        if len(self.num_later_pieces):
            num_sequences = num_sequences - self.num_later_pieces
        return num_sequences

    @property
    def decoder(self) -> BatchTable | None:
        """Return the table of the decoder's side; None where batches hold no pairs."""
        if not len(self.decoder_tokens):
            return None
        return replace(
            self.with_decoder(None),
            num_tokens=self.decoder_tokens,
            num_cells=self.decoder_cells,
            longest=self.decoder_longest,
        )

    @property
    def sides(self) -> list[BatchTable]:
        """Return the table of each side: the encoder's and the decoder's, or the only one."""
        decoder = self.decoder
        return [self] if decoder is None else [self, decoder]

    @property
    def widths(self) -> np.ndarray:
        """Return the width of each batch's rectangle; meaningless where rows are not padded."""
        widths: np.ndarray = self.num_cells // self.num_rows
        return widths

    @property
    def padding_ratios(self) -> np.ndarray:
        """Return the share of padding cells in each batch, float64."""
        ratios: np.ndarray = 1 - self.num_tokens / np.maximum(self.num_cells, 1)
        return ratios

    @property
    def padding_ratio(self) -> float:
        """Return the share of padding cells in all batches together."""
        return 1 - self.add_up(self.num_tokens) / max(self.add_up(self.num_cells), 1)

    def with_decoder(self, decoder: BatchTable | None) -> BatchTable:
        """Return the table with the decoder's side of the same batches; None removes it."""
        columns = [_empty()] * 3
        if decoder is not None:
            columns = [decoder.num_tokens, decoder.num_cells, decoder.longest]
        return replace(
            self, decoder_tokens=columns[0], decoder_cells=columns[1], decoder_longest=columns[2]
        )

    def fill_up(self, num_rows: int) -> BatchTable:
        """Return the table with filler rows in each batch, up to a number of rows."""
        filled = replace(
            self,
            num_rows=np.full_like(self.num_rows, num_rows),
            num_filler_rows=num_rows - self.num_real_rows,
            num_cells=self.widths * num_rows,
        )
        decoder = self.decoder
        return filled if decoder is None else filled.with_decoder(decoder.fill_up(num_rows))

    def add_up(self, column: np.ndarray) -> int:
        """Return the sum of a column over all batches, 0 for an empty column."""
        return int((column * self.counts).sum()) if len(column) else 0

    def take(self, rows: np.ndarray | slice) -> BatchTable:
        """Return some rows of the table, selected by a mask, by positions or by a slice."""
        return self._apply(lambda column: column[rows])

    def expand(self) -> BatchTable:
        """Return the same batches with one row per batch."""
        table = self._apply(lambda column: np.repeat(column, self.counts))
        numbers = np.arange(len(table)) - np.repeat(to_offsets(self.counts)[:-1], self.counts)
        return table._skip(numbers, np.ones(len(table), np.int64))

    def cut(self, cuts: Sequence[int]) -> list[BatchTable]:
        """Return one table for the batches between each two neighbouring cuts.

        Args:
            cuts: batch numbers, counted through this table, ascending.
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
        """Apply a function to every column that is not empty."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return BatchTable(
            **{name: change(column) if len(column) else column for name, column in columns.items()}
        )

    def _skip(self, num_skipped: np.ndarray, counts: np.ndarray) -> BatchTable:
        """Return `counts` batches of each row of the table, after the first `num_skipped`."""
        return replace(
            self,
            starts=self.starts + num_skipped * self.num_real_rows,
            counts=counts,
            index=self.index + num_skipped[: len(self.index)],
        )
