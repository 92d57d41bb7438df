"""What the levels need to know of every batch: one column for each number, one entry a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from seqpack_cli.shards.shard import Shard


@dataclass(frozen=True)
class BatchTable:
    """Batches that passed the level `structure`; all columns int64[batches]."""

    index: np.ndarray  # of the whole set
    num_rows: np.ndarray
    num_filler_rows: np.ndarray
    longest: np.ndarray
    shortest: np.ndarray  # of rows that hold a sequence
    num_tokens: np.ndarray
    num_cells: np.ndarray
    num_sequences: np.ndarray  # that begin here; all but later pieces of split ones
    num_split_sequences: np.ndarray  # whose second piece is here

    def __len__(self) -> int:
        return len(self.index)

    def take(self, kept: np.ndarray) -> BatchTable:
        """Keep some batches, given as bool[batches] or as places."""
        return BatchTable(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})


def join_tables(tables: Sequence[BatchTable]) -> BatchTable:
    """Put tables one after another; of none, an empty one."""
    return BatchTable(
        **{
            field.name: np.concatenate(
                [np.empty(0, np.int64), *(getattr(table, field.name) for table in tables)]
            )
            for field in fields(BatchTable)
        }
    )


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
    num_rows = np.diff(offsets)
    fillers = tensors.get("num_filler_rows", np.zeros_like(num_rows))
    last_rows = (offsets[1:] - 1 - fillers)[sound]
    longest = np.maximum.reduceat(lengths, offsets[:-1])[sound]
    if shard.layout == "varlen":
        shortest = np.minimum.reduceat(lengths, offsets[:-1])[sound]
        starts = tensors["piece_starts"]
        num_begun = np.add.reduceat((starts == 0).astype(np.int64), offsets[:-1])
        num_split = np.add.reduceat((starts == max_tokens).astype(np.int64), offsets[:-1])
    else:
        shortest = lengths[last_rows]  # longest first
        num_begun, num_split = num_rows - fillers, np.zeros_like(num_rows)
    return BatchTable(
        index=sound + first_batch,
        num_rows=num_rows[sound],
        num_filler_rows=fillers[sound],
        longest=longest,
        shortest=shortest,
        num_tokens=np.add.reduceat(lengths, offsets[:-1])[sound],
        num_cells=np.diff(tensors["data_offsets"])[sound],
        num_sequences=num_begun[sound],
        num_split_sequences=num_split[sound],
    )
