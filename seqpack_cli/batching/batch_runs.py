"""Batches that are alike, counted together: all that a plan says of them but for their sequences.

Sorted by length, most neighbours hold as many rows of the same length: of a thousand million
sequences of a few thousand lengths some thousand entries are left. Where every batch is another,
an entry is one batch, at 56 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from seqpack_cli.ranges import to_offsets


@dataclass(frozen=True)
class BatchRuns:
    """Runs of batches; all arrays are int64[runs], and say what each batch of a run has."""

    starts: np.ndarray  # of the run's first batch: its first row in the order of all sequences
    counts: np.ndarray  # batches of the run, one behind the other
    num_rows: np.ndarray  # without filler
    num_tokens: np.ndarray
    longest: np.ndarray
    widths: np.ndarray  # bucket key, or the longest row, rounded up where padded
    num_filler_rows: np.ndarray  # empty rows behind the others

    @classmethod
    def of_batches(
        cls,
        lengths: np.ndarray,
        batch_offsets: np.ndarray,
        widths: np.ndarray,
        num_filler_rows: np.ndarray,
    ) -> BatchRuns:
        """Give every batch of a run of rows a run of its own.

        Args:
            lengths: of all rows.
            batch_offsets: int64[batches + 1], where in lengths each batch begins.
        """
        starts, num_rows = batch_offsets[:-1], np.diff(batch_offsets)
        num_tokens = longest = np.empty(0, np.int64)
        if len(starts):
            rows = lengths[: batch_offsets[-1]]
            num_tokens = np.add.reduceat(rows, starts, dtype=np.int64)
            longest = np.maximum.reduceat(rows, starts).astype(np.int64)
        counts = np.ones_like(num_rows)
        return cls(starts, counts, num_rows, num_tokens, longest, widths, num_filler_rows)

    @classmethod
    def join(cls, pieces: list[BatchRuns]) -> BatchRuns:
        """Put runs behind one another."""
        empty = [np.empty(0, np.int64)]
        return cls(
            *(
                np.concatenate([getattr(piece, field.name) for piece in pieces] or empty)
                for field in fields(cls)
            )
        )

    @property
    def num_batches(self) -> int:
        """Count the batches."""
        return int(self.counts.sum())

    def add_up(self, column: np.ndarray) -> int:
        """Give the sum of a column over all batches."""
        return int((column * self.counts).sum())

    def cut(self, cuts: list[int]) -> list[BatchRuns]:
        """Give the batches between neighbouring cuts, in rising order."""
        offsets = to_offsets(self.counts)
        firsts = (np.searchsorted(offsets, cuts, "right") - 1).tolist()
        ends = np.searchsorted(offsets, cuts, "left").tolist()
        return [
            self._take(slice(firsts[place], ends[place + 1] * (last > first)), offsets, first, last)
            for place, (first, last) in enumerate(pairwise(cuts))
        ]

    def _take(self, runs: slice, offsets: np.ndarray, first: int, last: int) -> BatchRuns:
        columns = {field.name: getattr(self, field.name)[runs] for field in fields(self)}
        begins = np.maximum(offsets[:-1][runs], first)
        columns["counts"] = np.minimum(offsets[1:][runs], last) - begins
        skipped = begins - offsets[:-1][runs]
        columns["starts"] = columns["starts"] + skipped * columns["num_rows"]
        return BatchRuns(**columns)

    def expand(self) -> BatchRuns:
        """Give every batch a run of its own."""
        columns = {
            field.name: np.repeat(getattr(self, field.name), self.counts) for field in fields(self)
        }
        numbers = np.arange(self.num_batches) - np.repeat(to_offsets(self.counts)[:-1], self.counts)
        columns["counts"] = np.ones(len(numbers), np.int64)
        columns["starts"] = columns["starts"] + numbers * columns["num_rows"]
        return BatchRuns(**columns)
