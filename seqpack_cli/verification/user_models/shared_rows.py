"""Sequences -> a varlen or streams batch like those of a shard: what no collate function makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from seqpack_cli.batching.limits import round_up
from seqpack_cli.shards.geometry import Geometry
from seqpack_cli.shards.row_places import place_in_rows
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.training.batch_tensors import StreamTensors, VarlenTensors
from seqpack_cli.training.labels import IGNORED
from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences


def lay_out_varlen(
    sequences: Sequence[TokenSequence], labels: str | None, geometry: Geometry
) -> VarlenTensors:
    """Lay sequences out one after another, in rows and with padding as the geometry has them."""
    joined = TokenSequences.join(sequences)
    rounded = round_up(joined.lengths, geometry.multiple)
    if geometry.num_rows is None:
        rows, row_length, num_cells = None, None, int(rounded.sum())
        starts = np.cumsum(rounded) - rounded
    else:
        row_length = geometry.row_length
        rows = _fill_rows(rounded, row_length)
        starts = rows * row_length + place_in_rows(rounded, rows)
        num_cells = (int(rows[-1]) + 1) * row_length
    cells = np.concatenate(
        [
            np.arange(start, start + length)
            for start, length in zip(starts.tolist(), joined.lengths.tolist(), strict=True)
        ]
    )

    def spread(values: np.ndarray, fill: int) -> np.ndarray:
        spread_out = np.full(num_cells, fill, np.int64)
        spread_out[cells] = values
        return spread_out

    batch = VarlenBatch(
        spread(joined.ids, geometry.pad_id),
        joined.lengths,
        joined.original_indices,
        joined.piece_starts,
        row_indices=rows,
        row_length=row_length,
        multiple=geometry.multiple,
    )
    beside = {name: spread(each, IGNORED) for name, each in joined.token_columns.items()}
    shaped = {name: each.reshape(batch.shape) for name, each in beside.items()}
    batch.columns.update({**joined.columns, **shaped})
    return VarlenTensors.from_batch(batch, labels)


def lay_out_streams(
    sequences: Sequence[TokenSequence], _: str | None, geometry: Geometry
) -> StreamTensors:
    """Lay sequences out in a stream each, beginning with a new state; without labels."""
    joined = TokenSequences.join(sequences)
    shape = (int(joined.lengths.max()), len(sequences))
    ids = torch.full(shape, geometry.pad_id)
    resets = torch.zeros(shape, dtype=torch.bool)
    resets[0] = True
    for stream, sequence in enumerate(sequences):
        ids[: len(sequence.ids), stream] = sequence.ids
    return StreamTensors(
        ids,
        resets,
        torch.from_numpy(joined.lengths.copy()),
        torch.from_numpy(joined.original_indices.copy()),
        torch.from_numpy(joined.piece_starts.copy()),
        torch.arange(len(sequences)),
    )


def _fill_rows(lengths: np.ndarray, row_length: int) -> np.ndarray:
    """Return the row of each sequence, int64[B]: a new one where the row before is full."""
    rows, row, used = [], 0, 0
    for length in lengths.tolist():
        if used + length > row_length:
            row, used = row + 1, 0
        used += length
        rows.append(row)
    return np.array(rows, np.int64)
