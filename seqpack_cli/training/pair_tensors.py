"""A batch of pairs as tensors: an encoder's rows, a decoder's, and the labels of one of them.

Row r of both sides is the same pair in every tensor with a value per row. Where rows are packed,
the decoder's `sequences` has torch's sorted_indices, which bring its rows into the encoder's order:
`decoder_rnn(pair.decoder.sequences, encoder_state)` begins each row with the state of its own pair.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.errors import FolderError
from seqpack_cli.shards.layouts import describe_fields
from seqpack_cli.shards.manifest import PREFIX
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.columns import OVERLAP, TARGETS
from seqpack_cli.training.batch_tensors import BatchTensors, PackedTensors, PaddedTensors
from seqpack_cli.training.labels import NEXT, SAME, make_labels
from seqpack_cli.training.teacher_forcing import DecoderBatch, DecoderEnds, add_ends, shift_rows
from seqpack_cli.training.tensor_moves import pin_memory, reduce, to


@dataclass(frozen=True)
class PairOptions:
    """What a model learns from pairs.

    Args:
        labels: "next", the name of a column of the encoder, PREFIX and the name of one of the
            decoder, or None.
        ends: what goes before and after each row of the decoder.
        hidden: columns of the decoder that only labels follow from.
    """

    labels: str | None = None
    ends: DecoderEnds = field(default_factory=DecoderEnds)
    hidden: Collection[str] = ()


@dataclass(slots=True, eq=False)
class PairTensors:
    """A batch of pairs.

    Row r of both sides is the same pair in `lengths`, `original_indices`, columns with a value per
    sequence, in `ids` and `mask` of padded rows, and in what torch returns for packed ones: h_n,
    `pad_packed_sequence`, `unpack_sequence`. Only `data` of the decoder's `sequences`, columns per
    token and labels beside it lie longest row first.

    With labels="next" the decoder's rows are without their last token, and labels are without their
    first: at each token the one that follows, -100 where that is not a target and in padding.
    """

    encoder: PackedTensors | PaddedTensors
    decoder: PackedTensors | PaddedTensors
    # int64, beside the decoder's sequences.data or ids, or of a column
    labels: torch.Tensor | None = None

    to, pin_memory, __reduce__, __repr__ = to, pin_memory, reduce, describe_fields


Item = BatchTensors | PairTensors


def choose_pairs(
    sets: Sequence[ShardSet],
    labels: str | None,
    hidden: Collection[str],
    **special_ids: int | None,
) -> PairOptions | None:
    """Return what a model learns from the pairs of some shard sets; None if they hold none.

    Args:
        labels: checked as those of single sequences are.
        hidden: as name_columns has them.
        special_ids: bos_id and eos_id.

    Raises:
        ValueError: pairs have no such labels, or an id is not in the vocabulary of a decoder.
    """
    decoders = [shards.decoder for shards in sets if shards.decoder is not None]
    num_ids: int = decoders[0].manifest["vocab_size"] if decoders else 0
    for name, found in special_ids.items():
        if found is not None and not 0 <= found < num_ids:
            expected = (
                f"from 0 to {num_ids - 1}, the decoder's" if num_ids else "None without pairs"
            )
            raise ValueError(f"{name} is {found}, expected {expected}")
    if not decoders:
        return None
    if labels == SAME or (labels or "").removeprefix(PREFIX) in (TARGETS, OVERLAP):
        raise ValueError(f"labels is {labels!r}, which pairs do not have: expected {NEXT!r}")
    fills = {
        column.name: column.fill
        for decoder in decoders
        for column in decoder.columns.values()
        if column.is_per_token
    }
    ends = DecoderEnds(pad_id=decoders[0].manifest["pad_id"], fills=fills, **special_ids)
    return PairOptions(labels, ends, [name.removeprefix(PREFIX) for name in hidden])


def take_sides(shards: ShardSet, index: SupportsIndex, *, bytes_kept: int) -> list[Any]:
    """Return a batch as each side of the shards has it; that of single sequences alone.

    Raises:
        FolderError: it is damaged, or the sides have other numbers of rows.
    """
    batches = [side.take(index, bytes_kept=bytes_kept) for side in shards.sides]
    num_rows = [len(batch.lengths) for batch in batches]
    if num_rows[0] != num_rows[-1]:
        found = f"{num_rows[0]} rows of the encoder, {num_rows[-1]} of the decoder"
        raise FolderError(f"{shards.path}: batch {index}: {found}")
    return batches


def make_pair(
    encoder: DecoderBatch, decoder: DecoderBatch, kind: Any, options: PairOptions
) -> PairTensors:
    """Return tensors of both sides of a checked batch, copied so that they may be changed.

    Args:
        kind: PackedTensors or PaddedTensors, as the layout is.

    Raises:
        ValueError: with labels="next" a row of the decoder has one token, or labels cannot be
            made of the column that they name.
    """
    decoder, labels = add_ends(decoder, options.ends), None
    if options.labels == NEXT:
        decoder, labels = shift_rows(decoder, options.ends)
    found = decoder.encoder_rows
    if found is not None:
        rows = np.empty_like(found)
        rows[found] = np.arange(len(found))
        decoder = _reorder(decoder, rows, per_token=options.ends.fills)
    if labels is None and options.labels is not None:
        name = options.labels.removeprefix(PREFIX)
        labels = make_labels(encoder if name == options.labels else decoder, name)
    tensors = kind.from_batch(decoder, hidden=options.hidden)
    if found is not None:  # _make skips the checks of PackedSequence's constructor
        indices = torch.from_numpy(found.copy()), torch.from_numpy(rows)
        tensors.sequences = PackedSequence._make((*tensors.sequences[:2], *indices))
    made = None if labels is None else torch.from_numpy(labels)
    return PairTensors(kind.from_batch(encoder), tensors, made)


def _reorder(decoder: Any, rows: np.ndarray, *, per_token: Collection[str]) -> Any:
    """Return the batch with what it has of each row, but the tokens, in another order."""
    columns = {
        name: values if name in per_token else values.take(rows)
        for name, values in decoder.columns.items()
    }
    lengths, indices = decoder.lengths[rows], decoder.original_indices[rows]
    return replace(decoder, lengths=lengths, original_indices=indices, columns=columns)
