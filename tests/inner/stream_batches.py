"""A batch of streams from samples, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqpack_cli.training.batch_tensors import StreamTensors
from seqpack_cli.training.token_sequences import TokenSequence

NUM_STREAMS = 3


def collate_streams(samples: Sequence[TokenSequence], *, pad_id: int) -> StreamTensors:
    """Return whole sequences in up to NUM_STREAMS streams, one stream after another."""
    count = min(NUM_STREAMS, len(samples))
    rows = [number * count // len(samples) for number in range(len(samples))]
    streams = [
        [sample.ids for sample, row in zip(samples, rows, strict=True) if row == stream]
        for stream in range(count)
    ]
    width = max(sum(map(len, stream)) for stream in streams)
    ids = torch.full((width, count), pad_id)
    resets = torch.zeros(width, count, dtype=torch.bool)
    for column, stream in enumerate(streams):
        ids[: sum(map(len, stream)), column] = torch.cat(stream)
        begins = torch.tensor([0, *map(len, stream[:-1])]).cumsum(0)
        resets[begins, column] = True
    return StreamTensors(
        ids,
        resets,
        torch.tensor([len(sample.ids) for sample in samples]),
        torch.tensor([sample.original_index for sample in samples]),
        torch.zeros(len(samples), dtype=torch.int64),
        torch.tensor(rows),
    )


def find_stream_cells(batch: StreamTensors) -> list[tuple[int, int, int]]:
    """Return of each sequence its stream, first step and length."""
    ends: dict[int, int] = {}
    cells = []
    for stream, length in zip(batch.row_indices.tolist(), batch.lengths.tolist(), strict=True):
        cells.append((stream, ends.get(stream, 0), length))
        ends[stream] = ends.get(stream, 0) + length
    return cells
