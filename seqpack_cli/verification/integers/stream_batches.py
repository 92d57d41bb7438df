"""Where each stream begins and ends in every batch of a shard, as arrays [batches, streams].

Made at about 2 ns per token (128 steps); memory is a few numbers per stream and batch of a shard.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from seqpack_cli.shards.shard import Shard
from seqpack_cli.tokens.columns import TARGETS

NO_ID = -1  # of a piece that the next batch does not go on with, or not with a target


@dataclass(frozen=True, eq=False)
class StreamBatches:
    """The first and the last piece of each stream in some batches, int64 unless said."""

    shard: str
    batches: np.ndarray  # [batches], numbers in the whole set
    is_used: np.ndarray  # bool; where False, there are no tokens, and all other entries are 0
    num_tokens: np.ndarray
    first_rows: np.ndarray  # rows of the batch
    first_indices: np.ndarray  # sequences
    first_starts: np.ndarray
    first_targets: np.ndarray  # the id of the first token if it is a target, else NO_ID
    resets: np.ndarray  # of the first piece
    last_rows: np.ndarray
    last_indices: np.ndarray
    last_ends: np.ndarray
    next_ids: np.ndarray  # of the last piece

    @classmethod
    def of(cls, shard: Shard) -> StreamBatches:
        """Find them in a sound shard."""
        tensors, num_streams = shard.tensors, shard.arrays.geometry.num_rows
        assert num_streams is not None  # noqa: S101 - streams have a number
        places = shard.arrays.batch_of_rows * num_streams + tensors["row_indices"]
        firsts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        lasts, used = np.append(firsts[1:], len(places)) - 1, places[firsts]
        begins = tensors["sequence_offsets"][used // num_streams]
        # the first time step of a batch is its first cells, one for each stream
        cells = tensors["data_offsets"][used // num_streams] + used % num_streams
        ids = tensors["data"][cells].astype(np.int64)
        if TARGETS in shard.columns:
            ids[tensors[shard.columns[TARGETS].tensor_name][cells] == 0] = NO_ID

        def spread(values: np.ndarray) -> np.ndarray:
            found = np.zeros(len(shard) * num_streams, values.dtype)
            found[used] = values
            return found.reshape(-1, num_streams)

        return cls(
            shard.path.name,
            shard.first_batch + np.arange(len(shard)),
            is_used=spread(np.ones(len(used), bool)),
            num_tokens=spread(np.add.reduceat(tensors["lengths"], firsts)),
            first_rows=spread(firsts - begins),
            first_indices=spread(tensors["original_indices"][firsts]),
            first_starts=spread(tensors["piece_starts"][firsts]),
            first_targets=spread(ids),
            resets=spread(tensors["resets"][firsts]),
            last_rows=spread(lasts - begins),
            last_indices=spread(tensors["original_indices"][lasts]),
            last_ends=spread(tensors["piece_starts"][lasts] + tensors["lengths"][lasts]),
            next_ids=spread(tensors["next_ids"][lasts]),
        )

    def __len__(self) -> int:
        return len(self.batches)

    def take(self, first: int, last: int | None) -> StreamBatches:
        """Return some of the batches."""
        arrays = (getattr(self, each.name) for each in fields(self)[1:])
        return StreamBatches(self.shard, *(array[first:last] for array in arrays))

    def find_links(self, before: StreamBatches) -> np.ndarray:
        """Return where a stream goes on from the batch before, bool [batches, streams].

        Args:
            before: as many batches, each the one before.
        """
        goes_on: np.ndarray = self.is_used & before.is_used & (self.first_starts > 0)
        goes_on &= self.first_indices == before.last_indices
        goes_on &= self.first_starts == before.last_ends
        return goes_on
