"""The rows of the batches of a shard: the input of every layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Bits that say whether a piece of a sequence goes on from the batch before, or into the next one.
FROM_BEFORE = 1
INTO_NEXT = 2


@dataclass(frozen=True)
class ShardRows:
    """The rows of the batches of one shard, batch after batch."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int32[N]
    batch_offsets: np.ndarray  # int64[batches + 1], from 0
    num_cells: np.ndarray  # int64[batches], tokens and padding
    num_filler_rows: np.ndarray  # int64[batches]
    piece_starts: np.ndarray | None = None  # int32[N], where in its sequence each row begins
    row_indices: np.ndarray | None = None  # int32[N], the shared row of the batch it lies in
    continues: np.ndarray | None = None  # uint8[N], FROM_BEFORE and INTO_NEXT
    next_ids: np.ndarray | None = None  # int64[N], of rows that go on in the next batch, else -1
