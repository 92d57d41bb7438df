"""Our own batch classes: how a model is called by default, and where their sequences lie.

The one table of batch classes in `user_models`: a new class is one line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PackedTensors,
    PaddedTensors,
    VarlenTensors,
)
from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
from seqpack_cli.training.token_sequences import TokenSequence
from seqpack_cli.verification.user_models.located_batch import LocatedBatch

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
    """Call a model with the keyword arguments of transformers' padding-free models."""
    return model(
        input_ids=batch.ids[None],
        position_ids=batch.position_ids[None],
        cu_seq_lens_q=batch.cu_seqlens,
        cu_seq_lens_k=batch.cu_seqlens,
        max_length_q=batch.max_seqlen,
        max_length_k=batch.max_seqlen,
    )


def locate_packed(batch: PackedTensors) -> tuple[torch.Tensor, Cells]:
    """Return where each row lies in the data of the PackedSequence."""
    sizes = batch.sequences.batch_sizes
    starts = sizes.cumsum(0) - sizes
    places: Any = batch.sequences.unsorted_indices  # None if rows are longest first
    rows = range(len(batch.lengths)) if places is None else places.tolist()
    return batch.sequences.data, [
        starts[:length] + row for row, length in zip(rows, batch.lengths.tolist(), strict=True)
    ]


def locate_padded(batch: PaddedTensors) -> tuple[torch.Tensor, Cells]:
    """Return where the mask is True, row after row."""
    cells = batch.mask.flatten().nonzero().flatten()
    return batch.ids, torch.split_with_sizes(cells, batch.lengths.tolist())


def locate_varlen(batch: VarlenTensors) -> tuple[torch.Tensor, Cells]:
    """Return where the sequences lie in the row, or rows, that they share."""
    starts = batch.cu_seqlens.cpu()[:-1].tolist()
    lengths = batch.lengths.tolist()
    return batch.ids, [
        torch.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)
    ]


@dataclass(frozen=True)
class BatchKind:
    """One of our batch classes."""

    call: Callable[[Any, Any], Any]
    locate: Callable[[Any], tuple[torch.Tensor, Cells]]
    collate: Callable[..., BatchTensors]
    settings: tuple[str, ...] = ()  # of the shards' manifest, which collate takes


KINDS: dict[type[Any], BatchKind] = {
    PackedTensors: BatchKind(call_packed, locate_packed, collate_packed),
    PaddedTensors: BatchKind(
        call_padded, locate_padded, collate_padded, ("pad_id", "padding_side")
    ),
    VarlenTensors: BatchKind(call_varlen, locate_varlen, collate_varlen),
}


def bind_collate(tensors: type[Any], manifest: Mapping[str, Any], labels: str | None) -> Collate:
    """Return the collate function of a batch class, with the settings of a shards' manifest."""
    kind = KINDS[tensors]
    settings = {name: manifest[name] for name in kind.settings}
    return functools.partial(kind.collate, labels=labels, **settings)


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
    if isinstance(values, torch.Tensor) and values.shape == found.ids.shape:
        return values.flatten()[found.cells[number]].cpu()
    value = values[number]
    return value.item() if isinstance(value, torch.Tensor) else value
