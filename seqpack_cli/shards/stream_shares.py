"""Streams of a batch for one rank: all ranks take the same batches, and each its own streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.shards.streams import StreamsBatch
from seqpack_cli.tokens.kinds import Values


def count_streams(manifest: Mapping[str, Any]) -> int | None:
    """Return the number of streams of shards; None if their batches do not carry a state."""
    if not LAYOUTS[manifest["layout"]].carries_state:
        return None
    num_streams: int = manifest["options"]["batch_size"]
    return num_streams


def take_streams(batch: StreamsBatch, start: int, stop: int) -> StreamsBatch:
    """Return the streams from start to stop of a checked batch, numbered from 0."""
    pieces = slice(*np.searchsorted(batch.row_indices, [start, stop]).tolist())

    def take(values: Values) -> Values:
        if isinstance(values, np.ndarray) and values.ndim == 2:  # per token, [T, B]
            return values[:, start:stop]
        return values[pieces]

    assert batch.original_indices is not None  # noqa: S101 - shards have them
    assert batch.piece_starts is not None  # noqa: S101
    return StreamsBatch(
        batch.data.reshape(batch.shape)[:, start:stop].reshape(-1),
        batch.lengths[pieces],
        batch.original_indices[pieces],
        batch.piece_starts[pieces],
        batch.row_indices[pieces] - start,
        batch.resets[pieces],
        batch.next_ids[pieces],
        num_streams=stop - start,
        columns={name: take(values) for name, values in batch.columns.items()},
    )
