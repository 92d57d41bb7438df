"""The rows of the batches of a shard: the input of every layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ShardRows:
    """The rows of the batches of one shard, batch after batch."""

    indices: np.ndarray  # int64[N], the sequence of each row
    lengths: np.ndarray  # int32[N]
    batch_offsets: np.ndarray  # int64[batches + 1], from 0
    widths: np.ndarray  # int64[batches], of padded batches
    num_filler_rows: np.ndarray  # int64[batches]
    piece_starts: np.ndarray | None  # int32[N], where in its sequence each row begins
