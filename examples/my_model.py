"""Models of your own for `verify --model examples.my_model:make`: LSTMs over padded rows."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqpack_cli import PaddedTensors


class Tagger(nn.Module):
    """An LSTM over padded rows, in both directions, that stops at the end of each row."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 32)
        self.lstm = nn.LSTM(32, 32, bidirectional=True, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = pack_padded_sequence(self.embedding(ids), mask.sum(dim=1).cpu(), batch_first=True)
        outputs, _ = pad_packed_sequence(
            self.lstm(rows)[0], batch_first=True, total_length=ids.shape[1]
        )
        return outputs


class WrongTagger(Tagger):
    """The same without the lengths: the backward direction begins in the padding."""

    def forward(self, ids: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.lstm(self.embedding(ids))[0]
        return outputs


class LanguageModel(nn.Module):
    """An LSTM from left to right, with scores for the next token."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.head = nn.Linear(32, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.lstm(self.embedding(ids))[0])
        return scores


def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make the model that verify checks."""
    return Tagger(vocab_size).to(device, dtype)


def make_wrong(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make the wrong one."""
    return WrongTagger(vocab_size).to(device, dtype)


def make_language_model(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make the model whose loss verify checks."""
    return LanguageModel(vocab_size).to(device, dtype)


def call_with_loss(model: nn.Module, batch: PaddedTensors) -> dict[str, torch.Tensor]:
    """Return the scores, and the loss of the tokens that are targets."""
    scores = model(batch.ids)
    return {"logits": scores, "loss": cross_entropy(scores.flatten(0, 1), batch.labels.flatten())}


def call_with_wrong_loss(model: nn.Module, batch: PaddedTensors) -> dict[str, torch.Tensor]:
    """Return the same with a loss of every token."""
    scores = model(batch.ids)
    next_ids = batch.ids[:, 1:].masked_fill(~batch.mask[:, 1:], -100)
    return {"logits": scores, "loss": cross_entropy(scores[:, :-1].mT, next_ids)}
