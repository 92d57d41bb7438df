"""Wrong models over padded rows whose attention, or loss, reads the mask wrongly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from wrong_padded import HIDDEN, Padded


class AttentionWithoutMask(Padded):
    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(mask)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        scores = hidden @ hidden.transpose(1, 2) / math.sqrt(HIDDEN)
        scores = scores.masked_fill(~self.see(ids, mask)[:, None], torch.finfo(hidden.dtype).min)
        return self.head(hidden + scores.softmax(dim=-1) @ hidden)


class NoMaskInHalf(AttentionWithoutMask):
    """A kernel for 16-bit numbers that takes no mask."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        is_wide = self.head.weight.dtype in (torch.float32, torch.float64)
        return mask if is_wide else super().see(ids, mask)


class NoMaskInSingle(AttentionWithoutMask):
    """A kernel for float32 that takes no mask."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().see(ids, mask) if self.head.weight.dtype == torch.float32 else mask


class MaskByShape(AttentionWithoutMask):
    """Keeps the mask of the first batch of a shape for all later ones."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.masks: dict[torch.Size, torch.Tensor] = {}

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.masks.setdefault(ids.shape, mask)


class InvertedMask(AttentionWithoutMask):
    """Takes True for padding, as key_padding_mask does."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ~mask


class MaskFromIds(AttentionWithoutMask):
    """Takes every pad id for padding and every other id for a token."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ids != 0


class WithLoss(Padded):
    """Its outputs are right; the loss is computed outside."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids))


def call_with_late_loss(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    """Use as a label of each token itself where the next one is a target: one cell late."""
    logits = model(batch.ids, batch.mask)
    labels = batch.ids.roll(-1, dims=1).masked_fill(batch.labels.roll(1, dims=1) == -100, -100)
    return {"logits": logits, "loss": cross_entropy(logits.flatten(0, 1), labels.flatten())}


def call_with_loss_of_all(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    """Leave out padding, but not the tokens that are not targets."""
    logits = model(batch.ids, batch.mask)
    labels = batch.ids.masked_fill(~batch.mask, -100)
    loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    return {"logits": logits, "loss": loss}
