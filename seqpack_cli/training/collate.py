"""Collate functions for torch's DataLoader, one per layout: sequences -> one batch.

They use pack's own layout functions and take any sequences, also those of your own sampler. The
table of layouts at the end is the only one in `training`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqpack_cli.batching.buckets import find_bucket_key
from seqpack_cli.batching.limits import round_up
from seqpack_cli.errors import check_choice, check_positive
from seqpack_cli.shards.sequence_arrays import pack_ids, pad_ids
from seqpack_cli.shards.varlen import VarlenBatch
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    VarlenTensors,
    check_labels,
)
from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences


def collate_packed(
    sequences: Sequence[TokenSequence], *, labels: str | None = None
) -> PackedTensors:
    """Lay sequences out as a PackedSequence, longest first, equal ones as they come.

    Args:
        labels: "next" adds next-token labels.

    Raises:
        ValueError: there is none, or one is empty.
    """
    check_labels(labels)
    rows = _join(sequences).longest_first()
    batch = pack_ids(rows.ids, rows.lengths)
    return PackedTensors.from_batch(replace(batch, original_indices=rows.original_indices), labels)


def collate_padded(
    sequences: Sequence[TokenSequence],
    *,
    pad_id: int,
    padding_side: str = "right",
    pad_to_multiple: int = 1,
    bucket_keys: Sequence[int] | None = None,
    labels: str | None = None,
) -> PaddedTensors:
    """Lay sequences out as a rectangle, longest first, equal ones as they come, empty ones last.

    Args:
        pad_to_multiple: the width is the longest sequence's, rounded up to a multiple.
        bucket_keys: in rising order; the width is the smallest that holds the longest sequence.
        labels: "next" adds next-token labels.

    Raises:
        ValueError: there is no sequence with ids, or no bucket for the longest.
    """
    check_labels(labels)
    check_choice("padding_side", padding_side, ("right", "left"))
    check_positive("pad_to_multiple", pad_to_multiple)
    rows = _join(sequences).longest_first()
    longest = int(rows.lengths[0])
    width: int | None = int(round_up(np.array(longest), pad_to_multiple))
    if bucket_keys is not None:
        width = find_bucket_key(list(bucket_keys), longest)
    if width is None:
        raise ValueError(f"a sequence of {longest} ids, the buckets are {bucket_keys}")
    if not width:
        raise ValueError("all sequences are empty: expected one with ids, or bucket_keys")
    batch = pad_ids(
        rows.ids, rows.lengths, total_length=width, padding_value=pad_id, padding_side=padding_side
    )
    return PaddedTensors.from_batch(replace(batch, original_indices=rows.original_indices), labels)


def collate_varlen(
    sequences: Sequence[TokenSequence], *, labels: str | None = None
) -> VarlenTensors:
    """Lay sequences out one after another in one row, in the order given.

    Args:
        labels: "next" adds next-token labels.

    Raises:
        ValueError: there is none, or one is empty.
    """
    check_labels(labels)
    rows = _join(sequences)
    if not rows.lengths.all():
        row = int(rows.lengths.argmin())
        raise ValueError(f"expected no empty sequence, found one in row {row}")
    batch = VarlenBatch(rows.ids, rows.lengths, rows.original_indices)
    return VarlenTensors.from_batch(batch, labels)


# Of each layout: the class of its batches, and the function that makes one from sequences.
OF_LAYOUT: dict[str, tuple[Any, Callable[..., BatchTensors]]] = {
    "packed": (PackedTensors, collate_packed),
    "padded": (PaddedTensors, collate_padded),
    "varlen": (VarlenTensors, collate_varlen),
}


def _join(sequences: Sequence[TokenSequence]) -> TokenSequences:
    if not len(sequences):
        raise ValueError("expected at least one sequence")
    return TokenSequences.join(sequences)
