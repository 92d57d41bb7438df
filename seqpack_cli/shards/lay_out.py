"""The rows of one shard, as the plan has them or finds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqpack_cli.batching.batch_plan import BatchPlan
from seqpack_cli.batching.batch_runs import BatchRuns
from seqpack_cli.batching.length_order import sort_within_batches
from seqpack_cli.batching.row_ranges import RangeRows, WindowRange
from seqpack_cli.ranges import to_offsets


@dataclass(frozen=True)
class ShardRows:
    """What the plan says of the batches of one shard."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int[N]
    batch_offsets: np.ndarray  # int64[batches + 1], from 0
    widths: np.ndarray  # int64[batches]
    num_filler_rows: np.ndarray  # int64[batches]
    piece_starts: np.ndarray | None  # int[N]

    @classmethod
    def cut(cls, plan: BatchPlan, first: int, last: int) -> ShardRows:
        """Take some batches out of a plan, as views."""
        offsets = plan.batch_offsets[first : last + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        starts = plan.piece_starts
        return cls(
            plan.order[rows],
            plan.lengths[rows],
            offsets - offsets[0],
            plan.widths[first:last],
            plan.num_filler_rows[first:last],
            None if starts is None else starts[rows],
        )

    @property
    def runs(self) -> BatchRuns:
        """Give the numbers of each batch."""
        return BatchRuns.of_batches(
            self.lengths, self.batch_offsets, self.widths, self.num_filler_rows
        )


def take_rows(rows: RangeRows, indices: np.ndarray, lengths: np.ndarray) -> ShardRows:
    """Take the batches of one shard out of a span of rows that was found.

    Args:
        indices, lengths: of all rows of the span.
    """
    places, batches = rows.place_rows(), rows.runs.expand()
    taken = (indices[places], lengths[places], to_offsets(batches.num_rows))
    if isinstance(rows.span, WindowRange):  # what is sorted by length all over is so in each
        sort_within_batches(*taken)
    return ShardRows(*taken, batches.widths, batches.num_filler_rows, piece_starts=None)
