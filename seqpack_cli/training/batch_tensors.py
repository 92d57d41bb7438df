"""The batch classes, one per layout: torch tensors that a DataLoader returns and a model takes.

Ids are int64, which `nn.Embedding` and `cross_entropy` need on every device. `to` moves the tensors
that a model and a loss compute with; the others stay on the CPU (`tensor_moves`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.shards.layouts import Batch, describe_fields
from seqpack_cli.shards.packed import PackedBatch
from seqpack_cli.shards.padded import PaddedBatch
from seqpack_cli.shards.shared_rows import StreamsBatch, VarlenBatch
from seqpack_cli.tokens.columns import RESERVED
from seqpack_cli.training.attention_masks import (
    make_attention_mask,
    make_block_mask,
    make_mask_mod,
)
from seqpack_cli.training.kernel_arguments import make_kwargs, number_sequences
from seqpack_cli.training.labels import make_labels
from seqpack_cli.training.tensor_moves import pin_memory, reduce, to

INT64, FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)  # looked up once: 0.1 us each
Columns = dict[str, torch.Tensor | list[str]]


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

    to, pin_memory, __reduce__, __repr__ = to, pin_memory, reduce, describe_fields

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

    to, pin_memory, __reduce__, __repr__ = to, pin_memory, reduce, describe_fields

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

    to, pin_memory, __reduce__, __repr__ = to, pin_memory, reduce, describe_fields
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


@dataclass(slots=True, eq=False)
class StreamTensors:
    """A `streams` batch: the next T steps of B streams, whose state goes on in the next batch.

    A stream is one sequence after another; a batch has a piece of each sequence that it cuts.
    """

    ids: torch.Tensor  # int64[T, B]
    resets: torch.Tensor  # bool[T, B], True where the state is set to zero before the token
    lengths: torch.Tensor  # int64[N], of the pieces, stream after stream, on the CPU
    original_indices: torch.Tensor  # int64[N], of the token store, on the CPU
    piece_starts: torch.Tensor  # int64[N], where in its sequence each piece begins, on the CPU
    row_indices: torch.Tensor  # int64[N], the stream of each piece, on the CPU
    labels: torch.Tensor | None = None  # int64[T, B], beside ids, or of a column [N]
    columns: Columns = field(default_factory=dict)  # by name: [N], or [T, B] beside ids

    to, pin_memory, __reduce__, __repr__ = to, pin_memory, reduce, describe_fields

    @classmethod
    def from_batch(
        cls, batch: StreamsBatch, labels: str | None = None, hidden: Collection[str] = ()
    ) -> StreamTensors:
        """Return tensors of a checked batch, copied so that they may be changed.

        Args:
            hidden: columns that only labels may follow from.
        """
        assert batch.piece_starts is not None  # noqa: S101 - shards have them
        return cls(
            _widen(batch.data.reshape(batch.shape)),
            torch.from_numpy(batch.is_reset),
            *_copy_rows(batch),
            torch.from_numpy(batch.piece_starts.copy()),
            torch.from_numpy(batch.row_indices.copy()),
            *_copy_columns(batch, labels, hidden),
        )


BatchTensors = PackedTensors | PaddedTensors | VarlenTensors | StreamTensors


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
