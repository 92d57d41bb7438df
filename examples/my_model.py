"""A model of your own for `seqpack verify --model examples.my_model:make`: two LSTMs over rows."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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


def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make the model that verify checks."""
    return Tagger(vocab_size).to(device, dtype)


def make_wrong(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Make the wrong one."""
    return WrongTagger(vocab_size).to(device, dtype)
