"""Collate functions for torch's DataLoader, one per layout: sequences -> one batch.

They use pack's own layout functions and take any sequences, also those of your own sampler. The
table of layouts at the end is the only one in `training`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.batching.rows import round_up
from seqpack_cli.errors import check_choice, check_positive
from seqpack_cli.runs.options import convert
from seqpack_cli.shards.padded import pad_ids
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    StreamTensors,
    VarlenTensors,
)
from seqpack_cli.training.labels import IGNORED
from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences
from seqpack_cli.training.varlen_rows import FILLS, RowShape, make_varlen_batch


def collate_packed(
    sequences: Sequence[TokenSequence], *, labels: str | None = None, sort: bool = True
) -> PackedTensors:
    """Lay sequences out as torch's PackedSequence.

    Args:
        sequences: items of a StoreDataset, in any order, none empty.
        labels: as for ShardDataset.
        sort: True puts the rows longest first, equal ones as they come. False keeps the order of
            the samples, as torch's `pack_sequence(enforce_sorted=False)` does: lengths,
            original_indices, the h_n of a recurrent layer and what `unpack_sequence` returns are in
            that order, while `sequences` has sorted_indices.

    Raises:
        ValueError: there is no sequence, one is empty, or labels is not a column of theirs.
    """
    sort = convert("sort", sort, bool)
    samples = _join(sequences)
    rows = samples.longest_first()
    beside = {name: rows.pack(name).data for name in rows.token_columns}
    batch = replace(
        rows.pack(),
        original_indices=rows.original_indices,
        columns={**(rows if sort else samples).columns, **beside},
    )
    tensors = PackedTensors.from_batch(batch, _check_labels(labels))
    return tensors if sort else _restore_order(tensors, samples)


def collate_padded(
    sequences: Sequence[TokenSequence],
    *,
    pad_id: int,
    padding_side: str = "right",
    pad_to_multiple: int = 1,
    bucket_keys: Sequence[int] | None = None,
    labels: str | None = None,
    sort: bool = True,
) -> PaddedTensors:
    """Lay sequences out as a rectangle, padded on one side.

    Args:
        sequences: items of a StoreDataset, in any order; an empty one is a filler row.
        pad_id: the id in padding cells.
        padding_side: "right" or "left".
        pad_to_multiple: the width is the longest sequence's, rounded up to a multiple.
        bucket_keys: multiples of pad_to_multiple; the width is the smallest that holds the longest
            sequence.
        labels: as for ShardDataset.
        sort: True puts the rows longest first, equal ones as they come, empty ones last; False
            keeps the order of the samples.

    Raises:
        ValueError: there is no sequence with ids, or no bucket for the longest, or a number is out
            of range, or labels is not a column of the sequences.
    """
    check_choice("padding_side", padding_side, ("right", "left"))
    pad_id = convert("pad_id", pad_id, int)
    if pad_id < 0:
        raise ValueError(f"pad_id is {pad_id}, expected at least 0")
    rows = _join(sequences)
    if convert("sort", sort, bool):
        rows = rows.longest_first()
    width = _find_width(int(rows.lengths.max()), pad_to_multiple, bucket_keys)
    pad = functools.partial(
        pad_ids, lengths=rows.lengths, total_length=width, padding_side=padding_side
    )
    beside = {
        name: pad(values, padding_value=FILLS.get(name, IGNORED)).ids
        for name, values in rows.token_columns.items()
    }
    batch = replace(
        pad(rows.ids, padding_value=pad_id),
        original_indices=rows.original_indices,
        columns={**rows.columns, **beside},
    )
    return PaddedTensors.from_batch(batch, _check_labels(labels))


def collate_varlen(
    sequences: Sequence[TokenSequence],
    *,
    row_length: int | None = None,
    num_rows: int | None = None,
    align_sequences: int = 1,
    pad_id: int = 0,
    labels: str | None = None,
    sort: bool = False,
) -> VarlenTensors:
    """Lay sequences out one after another, in one row or in rows of one length.

    Args:
        sequences: items of a StoreDataset, none empty.
        row_length: the cells of a row. A sequence that does not fit into the rest of a row begins
            the next one. None: all sequences are in one row.
        num_rows: the rows of the batch, of which the last ones may be empty; None is as many as
            the sequences take.
        align_sequences: each sequence begins at a multiple of this many cells.
        pad_id: the id in padding cells.
        labels: as for ShardDataset.
        sort: True puts the longest first; False keeps the order of the samples.

    Raises:
        ValueError: there is no sequence, one is empty, the rows have no room for all, a number is
            out of range, or labels is not a column of the sequences.
    """
    shape = RowShape(
        convert("row_length", row_length, int | None),
        convert("num_rows", num_rows, int | None),
        convert("align_sequences", align_sequences, int),
        convert("pad_id", pad_id, int),
    )
    rows = _join(sequences)
    if convert("sort", sort, bool):
        rows = rows.longest_first()
    return VarlenTensors.from_batch(make_varlen_batch(rows, shape), _check_labels(labels))


def collate_each(sequences: Any, *, lay_out: Callable[..., Any]) -> Any:
    """Lay out the sequences of one batch, or a list of batches that were read together."""
    if isinstance(sequences, list) and sequences and isinstance(sequences[0], TokenSequences):
        return [lay_out(each) for each in sequences]
    return lay_out(sequences)


# Of each layout: the class of its batches, and the function that makes one from sequences; None
# where a batch depends on those before it.
OF_LAYOUT: dict[str, tuple[Any, Callable[..., BatchTensors] | None]] = {
    "packed": (PackedTensors, collate_packed),
    "padded": (PaddedTensors, collate_padded),
    "varlen": (VarlenTensors, collate_varlen),
    "streams": (StreamTensors, None),
}


def _restore_order(tensors: PackedTensors, samples: TokenSequences) -> PackedTensors:
    """Return a batch whose rows torch gives back in the order of the samples."""
    order = samples.find_order()
    data, batch_sizes, *_ = tensors.sequences
    indices = (torch.from_numpy(order), torch.from_numpy(np.argsort(order)))
    return replace(
        tensors,
        sequences=PackedSequence(data, batch_sizes, *indices),
        lengths=torch.from_numpy(samples.lengths.copy()),
        original_indices=torch.from_numpy(samples.original_indices.copy()),
    )


def _check_labels(labels: str | None) -> str | None:
    """Return labels, which are of the right type; the batch checks whether there is the column."""
    checked: str | None = None if labels is None else convert("labels", labels, str | None)
    return checked


def _find_width(longest: int, pad_to_multiple: int, bucket_keys: Sequence[int] | None) -> int:
    """Return the columns of the rectangle whose longest row has some ids."""
    multiple = convert("pad_to_multiple", pad_to_multiple, int)
    check_positive("pad_to_multiple", multiple)
    width: int | None = int(round_up(np.array(longest), multiple))
    if bucket_keys is not None:
        keys = _check_keys(bucket_keys, multiple)
        width = min((key for key in keys if key >= longest), default=None)
    if width is None:
        raise ValueError(f"a sequence of {longest} ids, the buckets are {bucket_keys}")
    if not width:
        raise ValueError("all sequences are empty: expected one with ids, or bucket_keys")
    return width


def _check_keys(bucket_keys: Sequence[int], multiple: int) -> list[int]:
    keys = list(convert("bucket_keys", bucket_keys, Sequence[int]))
    for key in keys:
        check_positive("a bucket key", key)
        if key % multiple:
            raise ValueError(f"bucket key {key} is not a multiple of pad_to_multiple {multiple}")
    return keys


def _join(sequences: Any) -> TokenSequences:
    if not isinstance(sequences, Sequence):
        found = type(sequences).__name__
        raise TypeError(f"sequences is a {found}, expected a sequence of TokenSequence")
    if not len(sequences):
        raise ValueError("expected at least one sequence")
    return TokenSequences.join(sequences)
