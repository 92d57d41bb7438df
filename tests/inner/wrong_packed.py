"""Wrong models over a PackedSequence."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

HIDDEN = 16


class Packed(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def compute(self, sequences: PackedSequence) -> tuple[PackedSequence, torch.Tensor]:
        packed = sequences._replace(data=self.embedding(sequences.data))
        outputs, (final, _) = self.lstm(packed)
        return outputs, final[-1]


class FinalStatesInSortedOrder(Packed):
    """Drops sorted_indices, so that h_n stays longest first."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        data = self.embedding(sequences.data)
        return self.lstm(PackedSequence(data, sequences.batch_sizes))[1][0][-1]


class DropsIndices(Packed):
    """Returns outputs longest first and does not say so."""

    def forward(self, sequences: PackedSequence) -> PackedSequence:
        outputs, _ = self.compute(sequences)
        return PackedSequence(outputs.data, outputs.batch_sizes)


class ConvolutionOverData(Packed):
    """Takes the neighbours in `data`, which are tokens of other sequences."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.convolution = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)

    def forward(self, sequences: PackedSequence) -> PackedSequence:
        data = self.embedding(sequences.data)
        return sequences._replace(data=self.convolution(data.T).T)


class LastColumn(Packed):
    """Takes the last time step of the longest sequence as the end of every one."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        return pad_packed_sequence(self.compute(sequences)[0])[0][-1]


class BatchSizesAsLengths(Packed):
    """Takes the first rows of `data` as the outputs of one sequence after another."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        data = self.compute(sequences)[0].data
        _, lengths = pad_packed_sequence(sequences)
        return data[lengths.cumsum(dim=0) - 1]


class BothEndsOfOtherRows(Packed):
    """Adds the first tokens in the order of `data` to final states in the order of the rows."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        outputs, final = self.compute(sequences)
        return final + outputs.data[: len(final)]
