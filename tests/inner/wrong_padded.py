"""Wrong models over padded rows."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import layer_norm, one_hot

HIDDEN = 16


class Padded(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)


class FinalStateOfPadding(Padded):
    """The final state of an LSTM that is not told the lengths."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[1][0][-1])


class BidirectionalOverPadding(Padded):
    """The backward LSTM reads the padding first."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN // 2, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class RowsAsTimeSteps(Padded):
    """Forgets batch_first."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(ids))[0]


class KeptState(Padded):
    """Begins each batch with the state in which the batch before ended."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.cell = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.state: torch.Tensor | None = None

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = None if self.state is None else self.state.mean(dim=1, keepdim=True)
        state = None if kept is None else kept.expand(-1, len(ids), -1).contiguous()
        hidden, self.state = self.cell(self.embedding(ids), state)
        return self.head(hidden)


class BatchNormOverPadding(Padded):
    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.norm(self.embedding(ids).transpose(1, 2)).transpose(1, 2)


class LayerNormOverTime(Padded):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        return self.head(layer_norm(hidden, hidden.shape[1:]))


class ScaleOfTheBatch(Padded):
    """Rounds to 8 bits with the largest number of the whole batch."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.head(self.embedding(ids))
        scale = hidden.abs().max() / 127
        return (hidden / scale).round() * scale


class MeanOverPadding(Padded):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids).mean(dim=1)


class MaxOverPadding(Padded):
    """Fills padding with 0, which is larger than a negative maximum."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids).masked_fill(~mask[..., None], 0.0).amax(dim=1)


class SecondToLast(Padded):
    """For a row of one token, index -1 is the last cell of the row."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows, last = torch.arange(len(ids), device=ids.device), mask.sum(dim=1) - 1
        hidden = self.embedding(ids)
        return self.head(hidden[rows, last] + hidden[rows, last - 1])


class SoftmaxOverRows(Padded):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).masked_fill(~mask[..., None], 0.0)
        return hidden.softmax(dim=0)


class PositionsFromTheRight(Padded):
    """Counts positions to the end of the rectangle."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.positions = nn.Embedding(1024, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.embedding(ids) + self.positions(steps.flip(0)))


class FlatRoll(Padded):
    """Adds the token before, and a row's first token gets the last cell of the row before.

    Padding adds nothing, so only a row of full width leaks.
    """

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).masked_fill(~mask[..., None], 0.0)
        before = hidden.flatten(0, 1).roll(1, dims=0).view_as(hidden)
        return self.head(hidden + before)


class CapacityOfExperts(Padded):
    """Two experts take half of the batch's tokens each, in order; the others are passed on."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.router = nn.Linear(HIDDEN, 2)
        self.experts = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        chosen = one_hot(self.router(hidden).argmax(dim=-1), 2) * mask[..., None]
        places = chosen.flatten(0, 1).cumsum(dim=0).view_as(chosen)
        taken = chosen.bool() & (places <= math.ceil(int(mask.sum()) / 2))
        for number, expert in enumerate(self.experts):
            hidden = hidden + expert(hidden) * taken[..., number, None]
        return self.head(hidden)


class TinyLeak(Padded):
    """Adds a millionth of the first row to all rows."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        return hidden + 1e-6 * hidden[0, mask[0]].sum(dim=0)


class WholeSequence(Padded):
    """Adds the mean of the whole sequence to each of its tokens."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).masked_fill(~mask[..., None], 0.0)
        mean = hidden.sum(dim=1, keepdim=True) / mask.sum(dim=1).clamp(min=1)[:, None, None]
        return self.head(hidden + mean)


class LeftPaddingFirst(FinalStateOfPadding):
    """Reads the padding on the left before the tokens."""


class BatchSize(Padded):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids)) / len(ids)


class Noise(Padded):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embedding(ids))
        return logits + 0.01 * torch.randn_like(logits)
