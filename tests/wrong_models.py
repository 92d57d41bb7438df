"""Wrong models: in each, tokens of one sequence change what another one gets, or later tokens do.

Every one is a mistake that people make, in as few lines as it can be made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from model_zoo import ZooModel
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import PackedSequence

HIDDEN = 16
SEED = 3


def seeded(kind: Callable[[int], nn.Module]) -> Callable[..., nn.Module]:
    """Return a function that makes a model with the same weights each time."""

    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return kind(vocab_size).to(device, dtype)

    return make


class PaddedLSTM(nn.Module):
    """An LSTM over padded rows that is not told the lengths."""

    bidirectional = False

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True, bidirectional=self.bidirectional)
        self.head = nn.Linear(HIDDEN * (1 + self.bidirectional), vocab_size)


class FinalStateOfPadding(PaddedLSTM):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[1][0][-1])


class BidirectionalOverPadding(PaddedLSTM):
    bidirectional = True

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class RowsAsTimeSteps(nn.Module):
    """An LSTM without batch_first over rows."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(ids))[0]


class Transformer(nn.Module):
    """One layer of attention over a row of several sequences; subclasses say who sees whom."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.positions = nn.Embedding(512, HIDDEN)
        self.projections = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)

    def sees(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (numbers[:, None] == numbers) & (steps[:, None] >= steps)

    def attend(self, hidden: torch.Tensor, sees: torch.Tensor) -> torch.Tensor:
        query, key, value = self.projections(hidden).chunk(3, dim=-1)
        return self.head(hidden + scaled_dot_product_attention(query, key, value, attn_mask=sees))

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cu_seq_lens_q: torch.Tensor,
        **_: Any,
    ) -> torch.Tensor:
        hidden = self.embedding(input_ids) + self.positions(position_ids)
        steps = torch.arange(input_ids.shape[1], device=input_ids.device)
        numbers = torch.bucketize(steps, cu_seq_lens_q[1:], right=True)
        return self.attend(hidden, self.sees(numbers, steps))


class NoBlockMask(Transformer):
    def sees(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return steps[:, None] >= steps


class PositionsRunOn(Transformer):
    def forward(self, input_ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        steps = torch.arange(input_ids.shape[1], device=input_ids.device)
        return super().forward(input_ids, **{**arguments, "position_ids": steps[None]})


class BorderOffByOne(Transformer):
    """The first token of a sequence belongs to the sequence before."""

    def sees(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        numbers = torch.cat([numbers[:1], numbers[:-1]])
        return (numbers[:, None] == numbers) & (steps[:, None] >= steps)


class OneTokenAhead(Transformer):
    def sees(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (numbers[:, None] == numbers) & (steps[:, None] + 1 >= steps)


class BatchNormOverPadding(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.norm(self.embedding(ids).transpose(1, 2)).transpose(1, 2)


class MeanOverPadding(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids).mean(dim=1)


class FinalStatesInSortedOrder(nn.Module):
    """h_n of a PackedSequence whose sorted_indices were dropped."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        data = self.embedding(sequences.data)
        return self.lstm(PackedSequence(data, sequences.batch_sizes))[1][0][-1]


def wrong(
    name: str, layout: str, kind: Callable[[int], nn.Module], faults: str, **options: Any
) -> ZooModel:
    return ZooModel(name, layout, seeded(kind), faults=frozenset(faults.split()), **options)


WRONG_MODELS = [
    wrong("final state of padding", "padded", FinalStateOfPadding, "alone padding", pooled=True),
    wrong("bidirectional over padding", "padded", BidirectionalOverPadding, "alone padding"),
    wrong("rows as time steps", "padded", RowsAsTimeSteps, "alone others order padding"),
    wrong("no block mask", "varlen", NoBlockMask, "alone others order", causal=True),
    wrong("positions run on", "varlen", PositionsRunOn, "alone order", causal=True),
    wrong("border off by one", "varlen", BorderOffByOne, "alone others order", causal=True),
    wrong("one token ahead", "varlen", OneTokenAhead, "causal", causal=True),
    wrong("BatchNorm over padding", "padded", BatchNormOverPadding, "alone others padding"),
    wrong("mean over padding", "padded", MeanOverPadding, "alone padding", pooled=True),
    wrong(
        "h_n in sorted order", "packed", FinalStatesInSortedOrder, "alone others order", pooled=True
    ),
]
