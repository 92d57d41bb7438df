"""The tensors that a model returns beside its outputs, such as pooled ones and last states.

Those that can be read in one way alone, per token or per sequence, are compared as the outputs are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.verification.user_models.located_batch import LocatedBatch
from seqpack_cli.verification.user_models.outputs import (
    ROWS,
    SEQUENCE,
    STATES,
    TOKEN,
    count_outer,
    find_kinds,
    list_outputs,
    split,
)

Leaf = torch.Tensor | PackedSequence


@dataclass
class OtherOutputs:
    """What other tensors are, by their names in what a model returned."""

    kinds: dict[str, str] = field(default_factory=dict)
    features: dict[str, tuple[int, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # name -> why

    def learn(self, tried: list[tuple[Any, LocatedBatch]]) -> None:
        """Find out what each tensor is, from what the model returned for some batches."""
        leaves = [dict(list_outputs(returned)[1:]) for returned, _ in tried]
        for name in leaves[0]:
            values = [each.get(name) for each in leaves]
            reason = _refuse(values)
            if reason is None:
                pairs = [(value, found) for value, (_, found) in zip(values, tried, strict=True)]
                ways = [
                    set(_find_choices(value, found)) for value, found in pairs if value is not None
                ]
                choices = set.intersection(*ways)
                reason = self._choose(name, choices, pairs)
            if reason is not None:
                self.left_out[name] = reason

    def _choose(
        self, name: str, choices: set[tuple[str, tuple[int, ...]]], pairs: list[tuple[Any, Any]]
    ) -> str | None:
        """Keep the only way to read a tensor; return why there is none."""
        if not choices:
            return "it is neither per token nor per sequence"
        if len({kind in (TOKEN, ROWS) for kind, _ in choices}) > 1:
            return "it may be per token or per sequence"
        kind, features = min(
            choices, key=lambda each: (TOKEN, ROWS, SEQUENCE, STATES).index(each[0])
        )
        if kind in (SEQUENCE, STATES) and all(
            found.ids.ndim > 1 and found.ids.shape[-1] in features for _, found in pairs
        ):
            return "it has a dimension of the width of the batch"
        self.kinds[name], self.features[name] = kind, features
        return None

    def read(self, returned: Any, found: LocatedBatch) -> dict[str, list[torch.Tensor]]:
        """Return the part of each sequence of the other tensors, by name.

        One that does not fit a batch is left out from there on.
        """
        parts = {}
        for name, value in list_outputs(returned)[1:]:
            if name not in self.kinds:
                continue
            kind = self.kinds[name]
            if (kind, self.features[name]) in _find_choices(value, found):
                parts[name] = split(value, _tensor(value), found, kind)
            else:
                self._leave_out(name, "its shape does not fit all batches")
        return parts

    def leave_out_random(self, runs: list[dict[str, list[torch.Tensor]]], limit: float) -> None:
        """Leave out tensors that differ between two runs of a batch, or are not finite."""
        first, second = runs
        for name in first.keys() & second.keys() & self.kinds.keys():
            one, other = torch.cat(first[name]), torch.cat(second[name])
            if not bool(one.isfinite().all()):
                self._leave_out(name, "it is not finite")
            elif not bool((one - other).abs().max() <= limit * one.abs().max()):
                self._leave_out(name, "two runs differ")

    def _leave_out(self, name: str, why: str) -> None:
        self.kinds.pop(name)
        self.left_out[name] = why


def _refuse(values: list[Leaf | None]) -> str | None:
    """Return why a tensor cannot be compared; None if it can be."""
    for value in values:
        if value is None:
            return "it is not there in all batches"
        tensor = _tensor(value)
        if tensor.ndim == 0 or tensor.is_nested:
            return "it is one number" if tensor.ndim == 0 else "it is a nested tensor"
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return f"it is {str(tensor.dtype).removeprefix('torch.')}"
    return None


def _find_choices(value: Leaf, found: LocatedBatch) -> list[tuple[str, tuple[int, ...]]]:
    """Return the ways to read a tensor of a batch, each with the shape of its features."""
    tensor = _tensor(value)
    shape = tuple(tensor.shape)
    kinds = find_kinds(tensor, found)
    choices: list[tuple[str, tuple[int, ...]]] = []
    if TOKEN in kinds:
        choices.append((TOKEN, shape[count_outer(tensor, found.ids) :]))
    if isinstance(value, PackedSequence):
        return choices
    if ROWS in kinds:
        choices.append((ROWS, shape[2:]))
    if not found.has_rows:
        return choices
    if SEQUENCE in kinds:
        choices.append((SEQUENCE, shape[1:]))
    if tensor.ndim > 2 and shape[1] == len(found.cells):
        choices.append((STATES, (shape[0], *shape[2:])))
    return choices


def _tensor(value: Leaf) -> torch.Tensor:
    return value.data if isinstance(value, PackedSequence) else value
