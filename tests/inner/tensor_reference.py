"""Read the sequences and all parts of a batch of tensors, for any layout."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

from seqpack_cli.shards.layouts import Batch
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    StreamTensors,
    VarlenTensors,
)

# A model does not compute with these, and torch's own functions need them on the CPU.
ON_CPU = ("lengths", "original_indices", "piece_starts", "row_indices", "sequences.batch_sizes")


def to_tensors(batch: Batch, *, labels: str | None = None) -> Any:
    """Return a batch of any layout as tensors, as a ShardDataset does."""
    kinds: dict[type[Any], Any] = {
        PackedBatch: PackedTensors,
        PaddedBatch: PaddedTensors,
        VarlenBatch: VarlenTensors,
        StreamsBatch: StreamTensors,
    }
    return kinds[type(batch)].from_batch(batch, labels)


def rows_of(item: BatchTensors) -> list[tuple[int, ...]]:
    """Return the sequences of an item, cut out by the arrays that a model reads."""
    if isinstance(item, PackedTensors):
        rows = unpack_sequence(item.sequences)
    elif isinstance(item, VarlenTensors):
        borders = item.cu_seqlens if item.cu_seqlens_padded is None else item.cu_seqlens_padded
        starts, lengths = borders[:-1].tolist(), item.cu_seqlens.diff().tolist()
        cells = item.ids.flatten()
        rows = [cells[start : start + n] for start, n in zip(starts, lengths, strict=True)]
    elif isinstance(item, StreamTensors):
        rows, streams = [], [stream.tolist() for stream in item.ids.T]
        for stream, length in zip(item.row_indices.tolist(), item.lengths.tolist(), strict=True):
            rows.append(torch.tensor(streams[stream][:length]))
            del streams[stream][:length]
    else:
        rows = [row[mask] for row, mask in zip(item.ids, item.mask, strict=True)]
    return [tuple(row.tolist()) for row in rows]


def parts_of(item: BatchTensors) -> dict[str, Any]:
    """Return every part of an item by its name, those of its PackedSequence one by one."""
    parts: dict[str, Any] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, PackedSequence):
            parts |= {f"{field.name}.{name}": part for name, part in value._asdict().items()}
        elif isinstance(value, dict):
            parts |= {f"{field.name}.{name}": part for name, part in value.items()}
        else:
            parts[field.name] = value
    return parts


def tensors_of(item: BatchTensors) -> dict[str, torch.Tensor]:
    """Return the parts of an item that are tensors."""
    return {name: part for name, part in parts_of(item).items() if isinstance(part, torch.Tensor)}


def assert_same(found: BatchTensors, expected: BatchTensors) -> None:
    """Assert that two items have the same type, and equal parts in value, dtype and shape."""
    assert type(found) is type(expected)
    found_parts, parts = parts_of(found), parts_of(expected)
    for name, part in parts.items():
        assert type(found_parts[name]) is type(part), name
        if isinstance(part, torch.Tensor):
            assert found_parts[name].dtype == part.dtype, name
            assert found_parts[name].tolist() == part.tolist(), name
        else:
            assert found_parts[name] == part, name
