"""The batch classes, one per layout: torch tensors that a DataLoader returns and a model takes.

Ids are int64, which `nn.Embedding` and `cross_entropy` need on every device. `to` moves the tensors
that a model and a loss compute with; `lengths`, `original_indices`, `piece_starts` and torch's
`batch_sizes` stay on the CPU, where torch's functions need them.

When a DataLoader's worker returns a batch, torch puts each tensor into a file of shared memory.
Tensors of up to MAX_INLINE_BYTES are sent through the pipe instead: 0.8 ms, not 3.3 ms, for a batch
of 60 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.shards.layouts import Batch, describe_fields
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.tokens.columns.keep_option import RESERVED
from seqpack_cli.training.attention_masks import (
    make_attention_mask,
    make_block_mask,
    make_mask_mod,
)
from seqpack_cli.training.kernel_arguments import make_kwargs, number_sequences
from seqpack_cli.training.labels import make_labels

MAX_INLINE_BYTES = 1 << 20
INT64, FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)  # looked up once: 0.1 us each
ON_CPU = ("lengths", "original_indices", "piece_starts")  # they stay there when the others move
Device = torch.device | str | int
Columns = dict[str, torch.Tensor | list[str]]
Tensors = TypeVar("Tensors", "PackedTensors", "PaddedTensors", "VarlenTensors")


def _to(tensors: Tensors, device: Device, non_blocking: bool = False) -> Tensors:
    """Return the batch on a device; all of ON_CPU and batch_sizes stay."""
    return _changed(tensors, lambda it: it.to(device, non_blocking=non_blocking))


def _pin_memory(tensors: Tensors) -> Tensors:
    """Return the batch in page-locked memory, for DataLoader(pin_memory=True)."""
    return _changed(tensors, lambda it: it.pin_memory())


def _reduce(tensors: BatchTensors) -> tuple[Any, ...]:
    """Return how to send a batch to another process, for pickle."""
    values = [getattr(tensors, each.name) for each in fields(tensors)]
    return _restore, (type(tensors), [_to_wire(value) for value in values])


@dataclass(slots=True, eq=False)
class PackedTensors:
    """A `packed` batch.

    With `collate_packed(sort=False)` lengths and original_indices are in the order of the samples,
    and `sequences` has torch's sorted_indices; else all are longest first, and it has none.
    """

    sequences: PackedSequence  # data int64[S], batch_sizes int64[T] on the CPU
    lengths: torch.Tensor  # int64[B], on the CPU
    original_indices: torch.Tensor  # int64[B], of the token store, on the CPU
    labels: torch.Tensor | None = None  # int64[S], beside sequences.data, or of a column [B]
    columns: Columns = field(default_factory=dict)  # by name: [B], or [S] beside sequences.data

    to, pin_memory, __reduce__, __repr__ = _to, _pin_memory, _reduce, describe_fields

    @classmethod
    def from_batch(
        cls, batch: PackedBatch, labels: str | None = None, hidden: Collection[str] = ()
    ) -> PackedTensors:
        """Return tensors of a checked batch, copied so that they may be changed.

        Args:
            hidden: columns that only labels may follow from.
        """
        batch_sizes = torch.from_numpy(batch.batch_sizes.copy())
        # skips the checks of PackedSequence's constructor, which were made already
        sequences = PackedSequence._make((_widen(batch.data), batch_sizes, None, None))
        return cls(sequences, *_copy_rows(batch), *_copy_columns(batch, labels, hidden))


@dataclass(slots=True, eq=False)
class PaddedTensors:
    """A `padded` batch; a filler row has length 0, original index -1 and no True in its mask."""

    ids: torch.Tensor  # int64[B, width]
    mask: torch.Tensor  # bool[B, width], True where a cell holds a token
    lengths: torch.Tensor  # int64[B], on the CPU
    original_indices: torch.Tensor  # int64[B], of the token store, on the CPU
    labels: torch.Tensor | None = None  # int64[B, width], beside ids, or of a column [B]
    columns: Columns = field(default_factory=dict)  # by name: [B], or [B, width] beside ids

    to, pin_memory, __reduce__, __repr__ = _to, _pin_memory, _reduce, describe_fields

    @classmethod
    def from_batch(
        cls, batch: PaddedBatch, labels: str | None = None, hidden: Collection[str] = ()
    ) -> PaddedTensors:
        """Return tensors of a checked batch, copied so that they may be changed.

        Args:
            hidden: columns that only labels may follow from.
        """
        mask = torch.from_numpy(batch.mask.copy())  # for left padding it is a reversed view
        columns = _copy_columns(batch, labels, hidden)
        return cls(_widen(batch.ids), mask, *_copy_rows(batch), *columns)


@dataclass(slots=True, eq=False)
class VarlenTensors:
    """A `varlen` batch: rows that several sequences, or pieces of sequences, share.

    One row [S], or N rows [N, L]; below, [S] stands for both. `cu_seqlens` counts tokens alone,
    `cu_seqlens_padded` all cells of the rows, one row after another.
    """

    ids: torch.Tensor  # int64[S] or [N, L]
    cu_seqlens: torch.Tensor  # int32[B + 1], where each sequence begins, and the end
    max_seqlen: int
    position_ids: torch.Tensor  # int64[S], from 0 in each sequence
    lengths: torch.Tensor  # int64[B], on the CPU
    original_indices: torch.Tensor  # int64[B], of the token store, on the CPU
    piece_starts: torch.Tensor  # int64[B], where in its sequence each one begins, on the CPU
    labels: torch.Tensor | None = None  # int64[S], beside ids, or of a column [B]
    columns: Columns = field(default_factory=dict)  # by name: [B], or [S] beside ids
    cu_seqlens_padded: torch.Tensor | None = None  # int32[B + 1], in cells; None without padding
    labels_name: str | None = None  # "next", "same", or the column that labels are

    to, pin_memory, __reduce__, __repr__ = _to, _pin_memory, _reduce, describe_fields
    to_kwargs, block_mask = make_kwargs, make_block_mask
    mask_mod, attention_mask = make_mask_mod, make_attention_mask

    @property
    def sequence_ids(self) -> torch.Tensor:
        """The number of each cell's sequence in the batch, -1 in padding, int64[S]."""
        return number_sequences(self)

    @classmethod
    def from_batch(
        cls, batch: VarlenBatch, labels: str | None = None, hidden: Collection[str] = ()
    ) -> VarlenTensors:
        """Return tensors of a checked batch, copied so that they may be changed.

        Args:
            hidden: columns that only labels may follow from.
        """
        cu_seqlens, position_ids = map(torch.from_numpy, (batch.cu_seqlens, batch.position_ids))
        longest = int(batch.lengths.max())
        rows = _copy_rows(batch)
        starts, padded = batch.piece_starts, batch.cu_seqlens_padded
        starts = np.zeros_like(batch.lengths) if starts is None else starts.copy()
        return cls(
            _widen(batch.data.reshape(batch.shape)),
            cu_seqlens,
            longest,
            position_ids,
            *rows,
            torch.from_numpy(starts),
            *_copy_columns(batch, labels, hidden),
            None if padded is None else torch.from_numpy(padded),
            labels,
        )


BatchTensors = PackedTensors | PaddedTensors | VarlenTensors


def _widen(ids: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(ids.astype(INT64))


def _copy_rows(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lengths and original_indices."""
    assert batch.original_indices is not None  # noqa: S101 - shards and stores have them
    return torch.from_numpy(batch.lengths.copy()), torch.from_numpy(batch.original_indices.copy())


def _copy_columns(
    batch: Batch, labels: str | None, hidden: Collection[str]
) -> tuple[torch.Tensor | None, Columns]:
    """Return labels and the columns that are not hidden."""
    columns: Columns = {}
    for name, values in batch.columns.items():  # without a call for each: 2 of 25 us a batch
        if name in hidden:
            continue
        if isinstance(values, np.ndarray):
            wide = FLOAT64 if values.dtype.kind == "f" else INT64
            columns[name] = torch.from_numpy(values.astype(wide))
        else:
            columns[name] = values.tolist()
    return None if labels is None else _make_labels(batch, labels, columns), columns


def _make_labels(batch: Batch, labels: str, columns: Columns) -> torch.Tensor:
    """Return labels; a column of integers whose rows all hold a sequence is not copied again."""
    found = None if labels in RESERVED else columns.get(labels)
    if not isinstance(found, torch.Tensor) or found.dtype is not torch.int64:
        return torch.from_numpy(make_labels(batch, labels))
    if np.count_nonzero(batch.lengths) == len(batch.lengths):
        return found
    return torch.from_numpy(make_labels(batch, labels))


def _changed(tensors: Tensors, change: Callable[[Any], Any]) -> Tensors:
    """Return a copy with change applied to the tensors that a model or a loss computes with."""
    values = {each.name: getattr(tensors, each.name) for each in fields(tensors)}
    for name, value in values.items():
        if name not in ON_CPU:
            values[name] = _change(value, change)
    return type(tensors)(**values)


def _change(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _change(column, change) for name, column in value.items()}
    return change(value) if isinstance(value, (torch.Tensor, PackedSequence)) else value


def _restore(kind: type[BatchTensors], values: list[Any]) -> BatchTensors:
    return kind(*(_from_wire(value) for value in values))


def _to_wire(value: Any) -> Any:
    if isinstance(value, PackedSequence):
        return tuple(_to_wire(part) for part in value)
    if isinstance(value, dict):
        return {name: _to_wire(column) for name, column in value.items()}
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return value.numpy() if value.nbytes <= MAX_INLINE_BYTES else value
    return value


def _from_wire(value: Any) -> Any:
    if isinstance(value, tuple):
        return PackedSequence(*(_from_wire(part) for part in value))
    if isinstance(value, dict):
        return {name: _from_wire(column) for name, column in value.items()}
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
