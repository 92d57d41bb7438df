"""Our own batch classes: how a model is called by default, and where their sequences lie.

The one table of batch classes in `user_models`: a new class is one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from seqpack_cli.shards.layouts import Geometry
from seqpack_cli.shards.shared_rows import NO_ID, StreamsBatch, place_in_rows
from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    StreamTensors,
    VarlenTensors,
)
from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
from seqpack_cli.training.labels import IGNORED, NEXT, SAME
from seqpack_cli.training.token_sequences import TokenSequence, TokenSequences
from seqpack_cli.training.varlen_rows import FILLS
from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.outputs import HINT, find_packed_cells
from seqpack_cli.verification.user_models.user_code import UserCode

Call = Callable[[Any, Any], Any]
Cells = Sequence[torch.Tensor]
Collate = Callable[[Sequence[Any]], Any]


def call_packed(model: Any, batch: PackedTensors) -> Any:
    """Call a model with the PackedSequence of ids."""
    return model(batch.sequences)


def call_padded(model: Any, batch: PaddedTensors) -> Any:
    """Call a model with the rectangle of ids and its mask."""
    return model(batch.ids, batch.mask)


def call_varlen(model: Any, batch: VarlenTensors) -> Any:
    """Call a model with the keyword arguments of transformers, without labels."""
    return model(**replace(batch, labels=None, labels_name=None).to_kwargs("transformers"))


def call_streams(model: Any, batch: StreamTensors) -> Any:
    """Call a model with the ids [T, B] and where its state is reset, from a state of zero."""
    return model(batch.ids, batch.resets)


def locate_packed(batch: PackedTensors) -> tuple[torch.Tensor, Cells]:
    """Return where each row lies in the data of the PackedSequence."""
    return batch.sequences.data, find_packed_cells(batch.sequences)


def locate_padded(batch: PaddedTensors) -> tuple[torch.Tensor, Cells]:
    """Return where the mask is True, row after row."""
    cells = batch.mask.flatten().nonzero().flatten()
    return batch.ids, torch.split_with_sizes(cells, batch.lengths.tolist())


def locate_varlen(batch: VarlenTensors) -> tuple[torch.Tensor, Cells]:
    """Return where the sequences lie in the row, or rows, that they share."""
    begins = batch.cu_seqlens if batch.cu_seqlens_padded is None else batch.cu_seqlens_padded
    starts, lengths = begins[:-1].tolist(), batch.lengths.tolist()
    return batch.ids, [
        torch.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)
    ]


def locate_streams(batch: StreamTensors) -> tuple[torch.Tensor, Cells]:
    """Return where the pieces lie, stream after stream."""
    lengths, streams = batch.lengths.numpy(), batch.row_indices.numpy()
    firsts, num_streams = place_in_rows(lengths, streams), batch.ids.shape[1]
    return batch.ids, [
        torch.arange(first, first + length) * num_streams + stream
        for first, length, stream in zip(
            firsts.tolist(), lengths.tolist(), streams.tolist(), strict=True
        )
    ]


@dataclass(frozen=True)
class BatchKind:
    """One of our batch classes."""

    call: Callable[[Any, Any], Any]
    locate: Callable[[Any], tuple[torch.Tensor, Cells]]
    lay_out: Callable[[Sequence[TokenSequence], str | None, Mapping[str, Any]], BatchTensors]
    called_as: str  # for messages
    labels: str = NEXT  # that `verify --model` puts into a batch


def _lay_out_packed(
    sequences: Sequence[TokenSequence], labels: str | None, _: Mapping[str, Any]
) -> PackedTensors:
    return collate_packed(sequences, labels=labels)


def _lay_out_padded(
    sequences: Sequence[TokenSequence], labels: str | None, manifest: Mapping[str, Any]
) -> PaddedTensors:
    return collate_padded(
        sequences,
        pad_id=manifest["pad_id"],
        padding_side=manifest["padding_side"],
        pad_to_multiple=manifest["options"]["pad_to_multiple"],
        bucket_keys=manifest["bucket_keys"],
        labels=labels,
    )


def _lay_out_varlen(
    sequences: Sequence[TokenSequence], labels: str | None, manifest: Mapping[str, Any]
) -> VarlenTensors:
    geometry = Geometry.of_manifest(manifest)
    return collate_varlen(
        sequences,
        row_length=None if geometry.num_rows is None else geometry.row_length,
        align_sequences=geometry.multiple,
        pad_id=geometry.pad_id,
        labels=labels,
    )


def _lay_out_streams(
    sequences: Sequence[TokenSequence], labels: str | None, manifest: Mapping[str, Any]
) -> StreamTensors:
    """Lay each sequence out in a stream of its own, which begins with a new state."""
    joined = TokenSequences.join(sequences)
    lengths, num_streams = joined.lengths, len(joined)

    def lay_out(values: np.ndarray, fill: int) -> np.ndarray:
        rows = torch.split_with_sizes(torch.from_numpy(values), lengths.tolist())
        padded: np.ndarray = pad_sequence(list(rows), padding_value=fill).numpy()  # (T, B)
        return padded

    beside = {
        name: lay_out(values, FILLS.get(name, IGNORED))
        for name, values in joined.token_columns.items()
    }
    batch = StreamsBatch(
        lay_out(joined.ids, manifest["pad_id"]).reshape(-1),
        lengths,
        joined.original_indices,
        joined.piece_starts,
        row_indices=np.arange(num_streams),
        resets=np.ones(num_streams, np.int64),
        next_ids=np.full(num_streams, NO_ID),
        num_streams=num_streams,
        columns={**joined.columns, **beside},
    )
    return StreamTensors.from_batch(batch, labels)


KINDS: dict[type[Any], BatchKind] = {
    PackedTensors: BatchKind(call_packed, locate_packed, _lay_out_packed, "model(batch.sequences)"),
    PaddedTensors: BatchKind(
        call_padded, locate_padded, _lay_out_padded, "model(batch.ids, batch.mask)"
    ),
    VarlenTensors: BatchKind(
        call_varlen,
        locate_varlen,
        _lay_out_varlen,
        'model(**batch.to_kwargs("transformers"))',
        SAME,  # models of transformers shift labels themselves
    ),
    StreamTensors: BatchKind(
        call_streams, locate_streams, _lay_out_streams, "model(batch.ids, batch.resets)"
    ),
}


def bind_collate(tensors: type[Any], manifest: Mapping[str, Any], labels: str | None) -> Collate:
    """Return the function that lays sequences out as the shards of a manifest are."""
    lay_out = KINDS[tensors].lay_out
    return lambda sequences: lay_out(sequences, labels, manifest)


def call_by_kind(model: Any, batch: Any) -> Any:
    """Call a model as is usual for the class of a batch.

    Raises:
        ValueError: it is not one of ours.
    """
    kind = KINDS.get(type(batch))
    if kind is None:
        raise ValueError(
            f"batches are {type(batch).__name__}: pass call, a function that takes (model, batch)"
        )
    return kind.call(model, batch)


def describe_call(call: Call, batch: Any) -> UserCode:
    """Return how a model is called with a batch, for messages."""
    if call is call_by_kind and type(batch) in KINDS:
        return UserCode(
            "the model", KINDS[type(batch)].called_as, f"if it takes other arguments, {HINT}"
        )
    name = getattr(call, "__name__", "")
    return UserCode("the model", f"{name if name.isidentifier() else 'call'}(model, batch)")


def take_samples(found: LocatedBatch) -> list[TokenSequence]:
    """Return the sequences of one of our batches as a collate function takes them."""
    batch = found.batch
    columns = batch.columns
    starts = getattr(batch, "piece_starts", torch.zeros_like(batch.lengths)).tolist()
    return [
        TokenSequence(
            found.sequence(number),
            index,
            {name: _take(values, found, number) for name, values in columns.items()},
            starts[number],
        )
        for number, index in enumerate(batch.original_indices.tolist())
    ]


def _take(values: Any, found: LocatedBatch, number: int) -> Any:
    """Return the value of a sequence, or of each of its tokens."""
    if (
        isinstance(values, torch.Tensor)
        and values.shape == found.ids.shape  # also of a value per sequence, if all have one token
        and not values.is_floating_point()
    ):
        return values.flatten()[found.cells[number]].cpu()
    value = values[number]
    return value.item() if isinstance(value, torch.Tensor) else value
