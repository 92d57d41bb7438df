"""The batches of a shard that passed the level `structure`, measured into the table of batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqpack_cli.batching.batch_table import BatchTable
from seqpack_cli.shards.shard import Shard


def measure_batches(
    shard: Shard, sound: np.ndarray, *, first_batch: int, max_tokens: int | None
) -> BatchTable:
    """Measure the sound batches of a shard.

    Args:
        sound: their numbers inside the shard.
        first_batch: the shard's first, in the whole set.
        max_tokens: where varlen splits a sequence.
    """
    tensors = shard.tensors
    offsets, lengths = tensors["sequence_offsets"], tensors["lengths"]
    table = BatchTable.of_batches(lengths, offsets)
    if shard.layout == "varlen":
        starts = tensors["piece_starts"]
        table = replace(
            table,
            shortest=np.minimum.reduceat(lengths, offsets[:-1]),
            num_later_pieces=np.add.reduceat((starts != 0).astype(np.int64), offsets[:-1]),
            num_split_sequences=np.add.reduceat(
                (starts == max_tokens).astype(np.int64), offsets[:-1]
            ),
        )
    else:
        num_filler_rows = tensors.get("num_filler_rows", table.num_filler_rows)
        last_rows = np.clip(offsets[1:] - 1 - num_filler_rows, offsets[:-1], offsets[1:] - 1)
        table = replace(
            table,
            num_filler_rows=num_filler_rows,
            num_cells=np.diff(tensors["data_offsets"]),
            shortest=lengths[last_rows],  # longest first
        )
    index = np.arange(len(table)) + first_batch
    return replace(table, index=index).take(sound)
