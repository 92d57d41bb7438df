"""Wrong models over a row that several sequences share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

HIDDEN = 16


class Transformer(nn.Module):
    """One layer of attention; subclasses say which tokens a token attends to."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.positions = nn.Embedding(512, HIDDEN)
        self.projections = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)

    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (numbers[:, None] == numbers) & (steps[:, None] >= steps)

    def number(self, steps: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return the number of each token's sequence."""
        return torch.bucketize(steps, ends, right=True)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cu_seq_lens_q: torch.Tensor,
        **_: Any,
    ) -> torch.Tensor:
        hidden = self.embedding(input_ids) + self.positions(position_ids)
        steps = torch.arange(input_ids.shape[1], device=input_ids.device)
        sees = self.see(self.number(steps, cu_seq_lens_q[1:]), steps)
        query, key, value = self.projections(hidden).chunk(3, dim=-1)
        return self.head(hidden + scaled_dot_product_attention(query, key, value, attn_mask=sees))


class NoBlockMask(Transformer):
    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return steps[:, None] >= steps


class WindowWithoutBorders(Transformer):
    """Attends to the last three tokens of the row."""

    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        before = steps[:, None] - steps
        return (before >= 0) & (before < 3)


class OneTokenAhead(Transformer):
    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (numbers[:, None] == numbers) & (steps[:, None] + 1 >= steps)


class GlobalToken(Transformer):
    """Every token also attends to the first one of the row."""

    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return super().see(numbers, steps) | (steps == 0)


class FirstToLast(Transformer):
    """Only the last sequence attends to the first one."""

    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        is_last = numbers[:, None] == numbers.max()
        return super().see(numbers, steps) | (is_last & (numbers == 0) & (steps[:, None] >= steps))


class BorderOffByOne(Transformer):
    """cu_seqlens one too large: a sequence's first token belongs to the sequence before."""

    def number(self, steps: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(steps, ends + 1, right=True)


class BorderOneEarly(Transformer):
    """cu_seqlens one too small: a sequence's last token belongs to the next sequence."""

    def number(self, steps: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(steps, ends - 1, right=True)


class PositionsRunOn(Transformer):
    def forward(self, input_ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        steps = torch.arange(input_ids.shape[1], device=input_ids.device)
        return super().forward(input_ids, **{**arguments, "position_ids": steps[None]})


class Row(nn.Module):
    """A model without attention over one row."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.convolution = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)


class LengthOfTheLongest(Row):
    """Scales the logits by the logarithm of the longest sequence's length."""

    def forward(self, input_ids: torch.Tensor, max_length_q: int, **_: Any) -> torch.Tensor:
        return self.head(self.embedding(input_ids)) * math.log(max_length_q + 1)


class AlternatingSegments(Row):
    """Adds the embedding of segment 0 or 1, by the number of the sequence in the row."""

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        segments = (position_ids == 0).cumsum(dim=1) % 2
        return self.head(self.embedding(input_ids) + self.embedding(segments))


class ConvolutionOverBorders(Row):
    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.convolution(self.embedding(input_ids).transpose(1, 2)).transpose(1, 2)


class NormOverTheRow(Row):
    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        hidden = self.embedding(input_ids)
        return layer_norm(hidden, hidden.shape[1:])


class OnlyHiddenStateReset(Row):
    """Sets h to zero where a sequence begins, and forgets c."""

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        hidden = self.embedding(input_ids[0])
        state, cell, states = hidden.new_zeros(1, HIDDEN), hidden.new_zeros(1, HIDDEN), []
        for step, position in enumerate(position_ids[0]):
            state, cell = self.cell(hidden[step : step + 1], (state * (position > 0), cell))
            states.append(state)
        return self.head(torch.cat(states))[None]


class FirstTokenOfTheNext(Row):
    """Pools at cu_seqlens[1:], which is one token behind the last."""

    def forward(
        self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        places = cu_seq_lens_q[1:].clamp(max=input_ids.shape[1] - 1)
        return self.head(self.embedding(input_ids[0, places.long()]))


class BordersOfTokens(Row):
    """Takes cu_seqlens, which counts tokens, for places in a row with padding."""

    def forward(self, ids: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(ids.numel(), device=ids.device)
        numbers = torch.bucketize(steps, cu_seqlens[1:], right=True)
        sees = (numbers[:, None] == numbers) & (steps[:, None] >= steps)
        hidden = self.embedding(ids.flatten())
        mixed = scaled_dot_product_attention(*[hidden[None]] * 3, attn_mask=sees)[0]
        return self.head(mixed).view(*ids.shape, -1)


class PaddingInSequences(BordersOfTokens):
    """Attends to the padding behind a sequence, too."""


class RowsAsSequences(Row):
    """Takes each row for one sequence."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        hidden = self.embedding(input_ids)
        return self.head(scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True))


def call_with_borders(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(batch.ids, batch.cu_seqlens)


def call_with_last_padding(model: nn.Module, batch: Any) -> torch.Tensor:
    """Read the row backwards, so that a sequence begins with the padding behind it."""
    padded = batch.cu_seqlens_padded
    begins = batch.cu_seqlens if padded is None else padded
    return model(batch.ids.flip(0), batch.ids.numel() - begins.flip(0)).flip(0)
