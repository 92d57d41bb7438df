"""Models over streams, which carry their state from cell to cell: correct ones and wrong ones."""

from __future__ import annotations

import torch
from model_zoo import ZooModel
from torch import nn
from wrong_models import seeded, wrong

HIDDEN = 16


class Cellwise(nn.Module):
    """An LSTM, step by step, whose state is zero before each token with a reset."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)

    def begin(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = self.head.weight.new_zeros(ids.shape[1], HIDDEN)
        return zeros, zeros

    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where h and c are kept before a step, each bool[B, 1]."""
        kept = ~resets[step, :, None]
        return kept, kept

    def forward(self, ids: torch.Tensor, resets: torch.Tensor) -> torch.Tensor:
        (state, cell), states = self.begin(ids), []
        for step, inputs in enumerate(self.embedding(ids)):
            keeps_state, keeps_cell = self.keep(step, resets)
            state, cell = self.cell(inputs, (state * keeps_state, cell * keeps_cell))
            states.append(state)
        return self.head(torch.stack(states))  # [T, B, V]


class NoReset(Cellwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().keep(step, torch.zeros_like(resets))


class ResetOneLate(Cellwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().keep(step, resets.roll(1, dims=0))


class ResetOfTheFirstStream(Cellwise):
    """Resets all streams where the first one is reset."""

    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().keep(step, resets[:, :1].expand_as(resets))


class CellNotReset(Cellwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state, cell = super().keep(step, resets)
        return state, torch.ones_like(cell)


CORRECT_STREAMS = [ZooModel("Cellwise", "streams", seeded(Cellwise), causal=True)]
WRONG_STREAMS = [
    wrong(NoReset, "streams", "alone isolation order", causal=True),
    wrong(ResetOneLate, "streams", "alone isolation order", causal=True),
    wrong(ResetOfTheFirstStream, "streams", "alone isolation order", causal=True),
    wrong(CellNotReset, "streams", "alone isolation order", causal=True),
]
