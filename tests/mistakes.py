"""Models with the mistakes that people make, each in as few lines as it can be made.

MISTAKES names for each the checks that must fail, and no other: outputs of a sequence "alone"
differ from those in its batch; they change with other sequences ("isolation") or with the ids in
"padding"; those of a token change with later ones ("causal"); the "loss" changes with a token
behind the last target. Where two runs differ, none of them runs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from zoo import ALIGNED, LEFT, ROWS, Entry

HIDDEN = 16


class Plain(nn.Module):
    """What the models are made of."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.positions = nn.Embedding(512, HIDDEN)
        self.projections = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.convolution = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)
        self.cell = nn.LSTMCell(HIDDEN, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, vocab_size)


class FinalStateOfPadding(Plain):
    """The final state of an LSTM that is not told the lengths."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[1][0][-1])


class RowsAsTimeSteps(Plain):
    """Forgets batch_first."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.embedding(ids).transpose(0, 1))[0].transpose(0, 1)


class KeptState(Plain):
    """Begins each batch with the state in which the batch before ended."""

    state: Any = None

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        state = None
        if self.state is not None:
            state = tuple(each.mean(1, keepdim=True).repeat(1, len(ids), 1) for each in self.state)
        hidden, self.state = self.lstm(self.embedding(ids), state)
        return self.head(hidden)


class BatchSize(Plain):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids)) / len(ids)


class MaxOverPadding(Plain):
    """Fills padding with 0, which is larger than a negative maximum."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids).masked_fill(~mask[..., None], 0.0).amax(dim=1)


class PositionsFromTheRight(Plain):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids) + self.positions(torch.arange(ids.shape[1]).flip(0)))


class FlatRoll(Plain):
    """A row's first token gets the last cell of the row before; only a full row leaks."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).masked_fill(~mask[..., None], 0.0)
        return self.head(hidden + hidden.flatten(0, 1).roll(1, dims=0).view_as(hidden))


class TinyLeak(Plain):
    """Adds a millionth of the first row to all rows."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        return hidden + 1e-6 * hidden[0, mask[0]].sum(dim=0)


class WholeSequence(Plain):
    """Adds the mean of the whole sequence to each of its tokens."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).masked_fill(~mask[..., None], 0.0)
        return self.head(hidden + hidden.sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None])


class Noise(Plain):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embedding(ids))
        return logits + 0.01 * torch.randn_like(logits)


class NoMask(Plain):
    """Attention over padded rows; subclasses say which cells are seen."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(mask)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        scores = hidden @ hidden.transpose(1, 2) / math.sqrt(HIDDEN)
        scores = scores.masked_fill(~self.see(ids, mask)[:, None], torch.finfo(hidden.dtype).min)
        return self.head(hidden + scores.softmax(dim=-1) @ hidden)


class NoMaskInHalf(NoMask):
    """A kernel for 16-bit numbers that takes no mask."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().see(ids, mask) if self.head.weight.dtype.itemsize == 2 else mask


class NoMaskInSingle(NoMask):
    """A kernel for float32 that takes no mask."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().see(ids, mask) if self.head.weight.dtype == torch.float32 else mask


class MaskFromIds(NoMask):
    """Takes every pad id for padding and every other id for a token."""

    def see(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ids != 0


def call_with_late_loss(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    """Use as a label of each token itself where the next one is a target: one cell late."""
    logits = model.head(model.embedding(batch.ids))
    labels = batch.ids.roll(-1, dims=1).masked_fill(batch.labels.roll(1, dims=1) == -100, -100)
    return {"logits": logits, "loss": cross_entropy(logits.flatten(0, 1), labels.flatten())}


def call_with_loss_of_padding(model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model.head(model.embedding(batch.ids))
    return cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten()), logits


class Transformer(Plain):
    """One layer of attention over a shared row; subclasses say what is seen."""

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
        steps = torch.arange(input_ids.shape[1])
        sees = self.see(self.number(steps, cu_seq_lens_q[1:]), steps)
        query, key, value = self.projections(hidden).chunk(3, dim=-1)
        return self.head(hidden + scaled_dot_product_attention(query, key, value, attn_mask=sees))


class NoBlockMask(Transformer):
    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return steps[:, None] >= steps


class OneTokenAhead(Transformer):
    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (numbers[:, None] == numbers) & (steps[:, None] + 1 >= steps)


class FirstToLast(Transformer):
    """Only the last sequence attends to the first one."""

    def see(self, numbers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        is_last = numbers[:, None] == numbers.max()
        return super().see(numbers, steps) | (is_last & (numbers == 0))


class BorderOffByOne(Transformer):
    """A sequence's first token belongs to the sequence before."""

    def number(self, steps: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(steps, ends + 1, right=True)


class PositionsRunOn(Transformer):
    def forward(self, input_ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        steps = torch.arange(input_ids.shape[1])
        return super().forward(input_ids, **{**arguments, "position_ids": steps[None]})


class LengthOfTheLongest(Plain):
    """Scales the logits by the logarithm of the longest sequence's length."""

    def forward(self, input_ids: torch.Tensor, max_length_q: int, **_: Any) -> torch.Tensor:
        return self.head(self.embedding(input_ids)) * math.log(max_length_q + 1)


class ConvolutionOverBorders(Plain):
    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.convolution(self.embedding(input_ids).transpose(1, 2)).transpose(1, 2)


class FirstTokenOfTheNext(Plain):
    """Pools at cu_seqlens[1:], which is one token behind the last."""

    def forward(
        self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        places = cu_seq_lens_q[1:].clamp(max=input_ids.shape[1] - 1)
        return self.head(self.embedding(input_ids[0, places.long()]))


class RowsAsSequences(Plain):
    """Takes each row for one sequence."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        hidden = self.embedding(input_ids)
        return self.head(scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True))


def call_with_last_padding(model: nn.Module, batch: Any) -> torch.Tensor:
    """Attend to all cells from the beginning of a sequence to that of the next one."""
    begins = batch.cu_seqlens if batch.cu_seqlens_padded is None else batch.cu_seqlens_padded
    numbers = torch.bucketize(torch.arange(batch.ids.numel()), begins[1:], right=True)
    hidden = model.embedding(batch.ids.flatten())[None]
    sees = numbers[:, None] == numbers
    return model.head(scaled_dot_product_attention(*[hidden] * 3, attn_mask=sees)[0])


class PackedLSTM(Plain):
    def compute(self, sequences: PackedSequence) -> tuple[PackedSequence, torch.Tensor]:
        packed = sequences._replace(data=self.embedding(sequences.data))
        outputs, (final, _) = self.lstm(packed)
        return outputs, final[-1]


class FinalStatesInSortedOrder(PackedLSTM):
    """Drops sorted_indices, so that h_n stays longest first."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        return self.compute(PackedSequence(sequences.data, sequences.batch_sizes))[1]


class DropsIndices(PackedLSTM):
    """Returns outputs longest first and does not say so."""

    def forward(self, sequences: PackedSequence) -> PackedSequence:
        outputs, _ = self.compute(sequences)
        return PackedSequence(outputs.data, outputs.batch_sizes)


class LastColumn(PackedLSTM):
    """Takes the last time step of the longest sequence as the end of every one."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        return pad_packed_sequence(self.compute(sequences)[0])[0][-1]


class Stepwise(Plain):
    """An LSTM over streams, step by step, whose state is zero before each token with a reset."""

    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where h and c are kept before a step, each bool[B, 1]."""
        kept = ~resets[step, :, None]
        return kept, kept

    def forward(self, ids: torch.Tensor, resets: torch.Tensor) -> torch.Tensor:
        state = cell = self.head.weight.new_zeros(ids.shape[1], HIDDEN)
        states = []
        for step, inputs in enumerate(self.embedding(ids)):
            keeps_state, keeps_cell = self.keep(step, resets)
            state, cell = self.cell(inputs, (state * keeps_state, cell * keeps_cell))
            states.append(state)
        return self.head(torch.stack(states))  # [T, B, V]


class NoReset(Stepwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().keep(step, torch.zeros_like(resets))


class ResetOneLate(Stepwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().keep(step, resets.roll(1, dims=0))


class CellNotReset(Stepwise):
    def keep(self, step: int, resets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state, cell = super().keep(step, resets)
        return state, torch.ones_like(cell)


MISTAKES = [
    Entry(FinalStateOfPadding, "padded", "alone padding"),
    Entry(FinalStateOfPadding, "padded", "alone padding", options=LEFT),
    Entry(RowsAsTimeSteps, "padded", "alone isolation padding"),
    Entry(KeptState, "padded"),
    Entry(BatchSize, "padded", "alone", causal=True),
    Entry(MaxOverPadding, "padded", "alone"),
    Entry(PositionsFromTheRight, "padded", "alone"),
    Entry(FlatRoll, "padded", "alone isolation", causal=True),
    Entry(TinyLeak, "padded", "alone isolation", dtype=torch.float32),
    Entry(WholeSequence, "padded", "causal", causal=True),
    Entry(NoMask, "padded", "alone padding"),
    Entry(NoMaskInHalf, "padded", "alone padding", dtype=torch.bfloat16),
    Entry(NoMaskInSingle, "padded", "alone padding", dtype=torch.float32),
    Entry(MaskFromIds, "padded", "padding"),
    Entry(Plain, "padded", "loss", causal=True, call=call_with_late_loss),
    Entry(Plain, "padded", "padding loss", causal=True, call=call_with_loss_of_padding),
    Entry(NoBlockMask, "varlen", "alone isolation", causal=True),
    Entry(OneTokenAhead, "varlen", "causal", causal=True),
    Entry(FirstToLast, "varlen", "alone isolation", causal=True),
    Entry(BorderOffByOne, "varlen", "alone isolation", causal=True),
    Entry(PositionsRunOn, "varlen", "alone", causal=True),
    Entry(LengthOfTheLongest, "varlen", "alone", causal=True),
    Entry(ConvolutionOverBorders, "varlen", "alone isolation"),
    Entry(FirstTokenOfTheNext, "varlen", "alone isolation"),
    Entry(RowsAsSequences, "varlen", "alone isolation", causal=True, options=ROWS),
    Entry(Plain, "varlen", "padding", call=call_with_last_padding, options=ALIGNED),
    Entry(FinalStatesInSortedOrder, "packed", "alone isolation"),
    Entry(DropsIndices, "packed", "alone isolation", causal=True),
    Entry(LastColumn, "packed", "alone"),
]
STREAM_MISTAKES = (NoReset, ResetOneLate, CellNotReset)
