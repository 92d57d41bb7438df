"""The rows of the batches of a shard: the input of every layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqpack_cli.batching.length_order import sort_within_batches

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
    # Of pairs: the other side, and in the decoder's the row of the encoder's batch, int64[N].
    decoder: ShardRows | None = None
    encoder_rows: np.ndarray | None = None


def sort_decoder(rows: ShardRows) -> ShardRows:
    """Sort the decoder's rows of each batch, longest first, ties in the order of the encoder's.

    Args:
        rows: of the decoder, each in the row of its batch that the encoder's has.
    """
    order, lengths = np.arange(len(rows.lengths)), rows.lengths.copy()
    sort_within_batches(order, lengths, rows.batch_offsets)
    firsts = np.repeat(rows.batch_offsets[:-1], np.diff(rows.batch_offsets))
    return replace(rows, indices=rows.indices[order], lengths=lengths, encoder_rows=order - firsts)
