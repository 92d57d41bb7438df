"""Pack many batches that were read together at once: a third of the time of one after another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from seqpack_cli.ranges import to_offsets
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.time_steps import pack_batches


class PackedTogether:
    """Batches of consecutive sequences, packed when the first of them is asked for.

    Args:
        values: by name, [S], what is packed.
        lengths: int64[N], of the sequences.
        batch_offsets: int64[batches + 1], the first sequence of each batch.
    """

    def __init__(
        self, values: Mapping[str, np.ndarray], lengths: np.ndarray, batch_offsets: np.ndarray
    ) -> None:
        self._values, self._lengths, self._offsets = values, lengths, batch_offsets
        self._packed: dict[str, list[PackedBatch]] = {}

    def take(self, number: int, name: str) -> PackedBatch:
        """Return the values of one batch, as `pack_ids` does."""
        if name not in self._packed:
            self._packed[name] = self._pack(self._values[name])
        return self._packed[name][number]

    def _pack(self, values: np.ndarray) -> list[PackedBatch]:
        data, batch_sizes, step_offsets = pack_batches(values, self._lengths, self._offsets)
        cell_offsets = to_offsets(self._lengths)[self._offsets]
        arrays = ((data, cell_offsets), (batch_sizes, step_offsets), (self._lengths, self._offsets))
        parts = [
            [array[start:end] for start, end in pairwise(offsets.tolist())]
            for array, offsets in arrays
        ]
        return [PackedBatch(*each) for each in zip(*parts, strict=True)]


def are_packable(lengths: np.ndarray, batch_offsets: np.ndarray) -> bool:
    """Return whether the batches have sequences, none of them empty, and the longest first."""
    rises = lengths[1:] > lengths[:-1]
    rises[batch_offsets[1:-1] - 1] = False  # where another batch begins
    has_rows = bool((batch_offsets[1:] > batch_offsets[:-1]).all())
    return has_rows and not rises.any() and bool((lengths > 0).all())
