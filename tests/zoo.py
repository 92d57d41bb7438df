"""An entry of the zoo of models: what it takes, what it does wrong, and what verify says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from seqpack_cli import (
    ModelOptions,
    ModelReport,
    Report,
    TokenSequence,
    collate_packed,
    collate_padded,
    collate_varlen,
    verify_model,
)

VOCAB_SIZE = 23
LENGTHS = (1, 8, 3, 12, 2, 5)
LEFT = {"padding_side": "left"}
ROWS, ALIGNED = {"row_length": 24}, {"align_sequences": 4}


@dataclass(frozen=True)
class Entry:
    """A model of one layout.

    Args:
        kind: makes it for a number of ids.
        faults: the checks that it must fail, and no other but the loss of order.
        call: how it takes a batch; None is as is usual for the layout.
        options: of the collate function.
        dtype: that of its weights.
        trains: it stays in train mode.
    """

    kind: Callable[[int], nn.Module]
    layout: str
    faults: str = ""
    call: Callable[[nn.Module, Any], Any] | None = None
    causal: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    trains: bool = True

    def __str__(self) -> str:
        name = getattr(self.kind, "__name__", "network")
        return name if self.call is None else f"{name}-{self.call.__name__}"

    def make(self, vocab_size: int = VOCAB_SIZE, seed: int = 3) -> nn.Module:
        """Return the model with the same weights each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.kind(vocab_size).to(self.dtype).train(self.trains)

    def collate(self, samples: Sequence[TokenSequence]) -> Any:
        """Return the batch of samples; padded rows of several are wider than the longest."""
        if self.layout == "packed":
            return collate_packed(samples, labels="next", sort=False)
        if self.layout == "padded":
            multiple = 4 if len(samples) > 1 else 1
            options = {"pad_id": 0, "pad_to_multiple": multiple, **self.options}
            return collate_padded(samples, labels="next", sort=False, **options)
        return collate_varlen(samples, labels="next", sort=False, **self.options)

    def judge(self, samples: Sequence[TokenSequence] | None = None, **options: Any) -> ModelReport:
        """Return what `verify_model` says of the model on a data set of samples."""
        return verify_model(
            draw_samples() if samples is None else samples,
            self.make(),
            collate_fn=self.collate,
            call=self.call,
            options=ModelOptions(causal=self.causal, **options),
        )


def draw_samples(
    lengths: Sequence[int] = LENGTHS, *, first_index: int = 0, shorter_by: int = 2
) -> list[TokenSequence]:
    """Draw sequences of ids; the last tokens of each are no targets."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for index, length in enumerate(lengths, first_index):
        ids = torch.randint(1, VOCAB_SIZE, (length,), generator=generator)
        targets = (torch.arange(length) < length - shorter_by).long()
        samples.append(TokenSequence(ids, index, {"targets": targets}))
    return samples


def find_failed(report: Report | ModelReport) -> set[str]:
    """Return the checks of a model that found an error above its limit in a judged dtype."""
    model = report if isinstance(report, ModelReport) else report.model
    assert model is not None
    return {
        name
        for name, check in model.checks.items()
        if any(size.error > size.limit for size in check.errors.values())
    }
