"""An entry of the zoo of models, and a slow oracle in plain Python for what a model may not do.

`verify --model` must let every correct model pass and catch every wrong one. The oracle knows
nothing of it: it makes batches of a few sequences, runs the model in float64 and compares the
outputs of each sequence one by one. tests/wrong_models.py and tests/random_models.py have models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from stream_batches import collate_streams, find_stream_cells
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from seqpack_cli.training.batch_tensors import (
    BatchTensors,
    PaddedTensors,
    StreamTensors,
    VarlenTensors,
)
from seqpack_cli.training.collate import collate_packed, collate_padded, collate_varlen
from seqpack_cli.training.token_sequences import TokenSequence

VOCAB_SIZE = 23
PAD_ID = 0
# Of outputs, relative to the largest. The smallest leak of a wrong model is 1e-6, seen in float64;
# models of transformers compute in float32 inside.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2}
CPU = torch.device("cpu")
LEFT = {"padding_side": "left"}
ROWS = ({"row_length": 24}, {"align_sequences": 4}, {"row_length": 32, "align_sequences": 8})

Outputs = dict[int, list[torch.Tensor]]  # of each sequence, by its index


@dataclass(frozen=True)
class ZooModel:
    """A model, the batches that it takes, and what it does wrong.

    Args:
        call: how the model takes a batch; None for the defaults of its layout.
        causal: no output of a token may depend on later tokens.
        faults: the checks that it must fail, all of them and no other. Outputs of a sequence
            "alone" differ from those in the batch; they change with other sequences ("isolation"),
            with the "order" of the rows, with the ids in "padding", or from call to call
            ("repeat"); those of a token change with later ones ("causal"); the "loss", which `call`
            returns in a dict, changes with a token behind the last target.
        options: of the collate function of the layout.
        pooled: every output has one vector for each sequence, [B, ...], else one for each token.
        dtype: the only one in which it has the faults; None is all.
    """

    name: str
    layout: str
    make: Callable[[int, torch.device, torch.dtype], nn.Module]
    call: Callable[[nn.Module, Any], Any] | None = None
    causal: bool = False
    faults: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)
    pooled: bool = False
    dtype: torch.dtype | None = None

    def run(self, model: nn.Module, batch: BatchTensors) -> Any:
        with torch.no_grad():
            return (self.call or DEFAULT_CALLS[self.layout])(model, batch)

    def collate(self, ids: dict[int, torch.Tensor], *, shorter_by: int = 0) -> BatchTensors:
        """Return the batch of sequences in the order of the dict, with next-token labels.

        Args:
            shorter_by: the last tokens of each sequence that are not targets.
        """
        samples = []
        for index, each in ids.items():
            targets = torch.ones_like(each)
            targets[max(len(each) - shorter_by, 0) :] = 0
            samples.append(TokenSequence(each, index, {"targets": targets}))
        return self.collate_samples(samples)

    def collate_samples(
        self, samples: Sequence[TokenSequence], *, sort: bool = False
    ) -> BatchTensors:
        """Return the batch of samples; padded rows of several are wider than the longest."""
        if self.layout == "padded":
            multiple = 4 if len(samples) > 1 else 1
            options = {"pad_id": PAD_ID, "pad_to_multiple": multiple, **self.options}
            return collate_padded(samples, labels="next", sort=sort, **options)
        if self.layout == "streams":
            return collate_streams(samples, pad_id=PAD_ID)
        if self.layout == "packed":
            return collate_packed(samples, labels="next", sort=sort)
        return collate_varlen(samples, labels="next", sort=sort, **self.options)


def varlen_arguments(batch: VarlenTensors) -> dict[str, Any]:
    """Return the keyword arguments that models of transformers take, without labels."""
    return replace(batch, labels=None, labels_name=None).to_kwargs("transformers")


DEFAULT_CALLS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "packed": lambda model, batch: model(batch.sequences),
    "padded": lambda model, batch: model(batch.ids, batch.mask),
    "varlen": lambda model, batch: model(**varlen_arguments(batch)),
    "streams": lambda model, batch: model(batch.ids, batch.resets),
}


def iter_values(output: Any) -> Iterable[Any]:
    """Yield the tensors and PackedSequences of an output in order."""
    if isinstance(output, (torch.Tensor, PackedSequence)):
        yield output
    elif isinstance(output, dict):
        for each in output.values():
            yield from iter_values(each)
    elif isinstance(output, (list, tuple)):
        for each in output:
            yield from iter_values(each)
    elif dataclasses.is_dataclass(output):
        for each in dataclasses.fields(output):
            yield from iter_values(getattr(output, each.name))


def read_outputs(output: Any, batch: BatchTensors, *, pooled: bool) -> Outputs:
    """Return for each sequence its part of every tensor of an output."""
    numbers = batch.original_indices.tolist()
    found: Outputs = {number: [] for number in numbers}
    for value in iter_values(output):
        if isinstance(value, torch.Tensor) and (value.ndim == 0 or not value.is_floating_point()):
            continue  # the loss, lengths
        parts = value if pooled else _split_tokens(value, batch)
        for number, each in zip(numbers, parts, strict=True):
            found[number].append(each.detach().clone())
    return found


def _split_tokens(value: Any, batch: BatchTensors) -> Sequence[torch.Tensor]:
    """Return for each sequence the values of its tokens, [length, ...]."""
    lengths = batch.lengths.tolist()
    if isinstance(batch, PaddedTensors):
        masks = batch.mask[:, : value.shape[1]]  # it may end with the longest sequence
        return [row[mask] for row, mask in zip(value, masks, strict=True)]
    if isinstance(batch, StreamTensors):
        found = find_stream_cells(batch)
        return [value[first : first + length, stream] for stream, first, length in found]
    if isinstance(batch, VarlenTensors):
        begins = batch.cu_seqlens if batch.cu_seqlens_padded is None else batch.cu_seqlens_padded
        cells = value.reshape(-1, value.shape[-1])  # of [1, S, H], [S, H] or [N, L, H]
        both = zip(begins.tolist(), lengths, strict=False)
        return [cells[begin : begin + length] for begin, length in both]
    if isinstance(value, torch.Tensor) and value.ndim == 2:  # beside the data
        value = batch.sequences._replace(data=value)
    if isinstance(value, PackedSequence):
        value, _ = pad_packed_sequence(value, batch_first=True)
    if value.shape[:2] != (len(lengths), max(lengths)):
        return value.unbind(1)  # h_n [layers, B, H]
    return [row[:length] for row, length in zip(value, lengths, strict=True)]


def find_faults(
    entry: ZooModel, ids: dict[int, torch.Tensor], dtype: torch.dtype = torch.float64
) -> set[str]:
    """Return the checks that a model fails over one batch of sequences."""
    model, tolerance = entry.make(VOCAB_SIZE, CPU, dtype), TOLERANCES[dtype]

    def run(batch: BatchTensors) -> Outputs:
        return read_outputs(entry.run(model, batch), batch, pooled=entry.pooled)

    whole = entry.collate(ids)
    expected, again = run(whole), run(whole)
    found = {"repeat"} if _differ(tolerance, expected, again) else set()
    for index in ids:
        try:
            alone = run(entry.collate({index: ids[index]}))
        except ValueError:  # of a model that needs more than one token
            found.add("alone")
            continue
        found |= {"alone"} if _differ(tolerance, expected, alone) else set()
    found |= {"order"} if _differ(tolerance, expected, run(entry.collate(_turn(ids)))) else set()
    for index in ids:
        changed = run(entry.collate({**ids, index: _next_ids(ids[index])}))
        del changed[index]
        found |= {"isolation"} if _differ(tolerance, expected, changed) else set()
    padding = find_padding(whole)
    if padding is not None and padding.any():
        whole.ids[padding] = VOCAB_SIZE - 1
        found |= {"padding"} if _differ(tolerance, expected, run(whole)) else set()
    if entry.causal and _sees_later_tokens(entry, ids, run, expected, tolerance):
        found.add("causal")
    if entry.causal and _counts_tokens_behind_targets(entry, model, ids, tolerance):
        found.add("loss")
    return found


def find_padding(batch: BatchTensors) -> torch.Tensor | None:
    """Return the cells of padding, in the shape of the ids; None if the layout has none."""
    if isinstance(batch, PaddedTensors):
        return ~batch.mask
    return batch.sequence_ids < 0 if isinstance(batch, VarlenTensors) else None


def _turn(ids: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    first, second, *others = ids.items()
    return dict([*reversed(others), first, second])


def _next_ids(ids: torch.Tensor) -> torch.Tensor:
    """Return other ids, none of them PAD_ID."""
    return ids % (VOCAB_SIZE - 1) + 1


def _sees_later_tokens(
    entry: ZooModel,
    ids: dict[int, torch.Tensor],
    run: Callable[[BatchTensors], Outputs],
    expected: Outputs,
    tolerance: float,
) -> bool:
    for index, each in ids.items():
        for position in range(1, len(each)):
            later = torch.cat([each[:position], _next_ids(each[position:])])
            changed = run(entry.collate({**ids, index: later}))
            tokens = [value[:position] for value in changed[index] if len(value) == len(each)]
            before = [value[:position] for value in expected[index] if len(value) == len(each)]
            if _differ(tolerance, {index: before}, {index: tokens}):
                return True
    return False


def _counts_tokens_behind_targets(
    entry: ZooModel, model: nn.Module, ids: dict[int, torch.Tensor], tolerance: float
) -> bool:
    other = {index: torch.cat([each[:-2], _next_ids(each[-2:])]) for index, each in ids.items()}
    outputs = [entry.run(model, entry.collate(each, shorter_by=2)) for each in (ids, other)]
    losses = [output.get("loss") for output in outputs if isinstance(output, dict)]
    if not losses or losses[0] is None:
        return False
    return bool((losses[0] - losses[1]).abs() > tolerance)


def _differ(tolerance: float, expected: Outputs, found: Outputs) -> bool:
    """Return whether outputs of the sequences in found differ from the expected ones."""
    for index, values in found.items():
        for one, other in zip(expected[index], values, strict=True):
            scale = max(1.0, float(one.abs().max()))
            if not torch.allclose(one, other, rtol=0, atol=tolerance * scale):
                return True
    return False
