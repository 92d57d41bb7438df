"""Correct models as people write them, with what makes them hard to judge for a program."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from model_zoo import LEFT, ZooModel
from torch import nn
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

HIDDEN = 16
SEED = 5


class Plain(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab_size)


class PackedLSTM(Plain):
    """Returns what nn.LSTM returns: outputs and (h_n, c_n)."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN // 2, 2, bidirectional=True)

    def forward(self, sequences: PackedSequence) -> Any:
        return self.lstm(sequences._replace(data=self.embedding(sequences.data)))


class FinalStates(PackedLSTM):
    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        _, (final, _) = super().forward(sequences)
        return torch.cat([final[-2], final[-1]], dim=1)


class PaddedOutputs(PackedLSTM):
    """Returns padded rows and lengths, as pad_packed_sequence does."""

    def forward(self, sequences: PackedSequence) -> Any:
        return pad_packed_sequence(super().forward(sequences)[0], batch_first=True)


class LastOutputs(PackedLSTM):
    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        outputs, lengths = pad_packed_sequence(super().forward(sequences)[0], batch_first=True)
        last = outputs[torch.arange(len(outputs)), lengths - 1]
        return self.head(last)


class PackedInside(Plain):
    """A bidirectional LSTM over padded rows, packed on the way."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN // 2, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        lengths = mask.sum(dim=1).clamp(min=1).cpu()  # of filler, too
        packed = pack_padded_sequence(
            self.embedding(ids), lengths, batch_first=True, enforce_sorted=False
        )
        outputs, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1]
        )
        return self.head(outputs)


class Trimmed(PackedInside):
    """Its outputs end with the longest sequence, not with the rectangle."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, mask)[:, : int(mask.sum(dim=1).max())]


class ForwardOverPadding(Plain):
    """Padding on the right comes last: it changes no output of a token."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.GRU(HIDDEN, HIDDEN, 2, batch_first=True, dropout=0.3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class TorchEncoder(Plain):
    """torch's encoder, which has a path of its own for evaluation."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        layer = nn.TransformerEncoderLayer(HIDDEN, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=~mask))


class MaskedConvolutions(Plain):
    """Padding is set to zero before each convolution, which pads with zeros itself."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.first = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)
        self.second = nn.Conv1d(HIDDEN, HIDDEN, 5, padding=2)
        self.norm = nn.BatchNorm1d(HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).transpose(1, 2)
        hidden = self.norm(self.first(hidden * mask[:, None])).relu()
        return self.head(self.second(hidden * mask[:, None]).transpose(1, 2))


class BrokenPadding(Plain):
    """What lies in padding is not a number."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids)).masked_fill(~mask[..., None], math.nan)


class HiddenCounts(Plain):
    """Computes in float32 inside, and keeps a table that no .to() moves."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.waves = torch.sin(torch.arange(512)[:, None] * torch.arange(1, HIDDEN + 1) / 7)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any) -> Any:
        hidden = self.embedding(input_ids).float() + self.waves.to(input_ids.device)[position_ids]
        return self.head((hidden / hidden.norm(dim=-1, keepdim=True)).to(self.head.weight.dtype))


class OneByOne(Plain):
    """Cuts the row into its sequences and packs them; cannot be copied because of its lock."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, 2, dropout=0.2)
        self.lock = threading.Lock()

    def forward(self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any) -> Any:
        with self.lock:
            hidden = self.embedding(input_ids[0]).split(cu_seq_lens_q.diff().tolist())
            packed = pack_sequence(hidden, enforce_sorted=False)
            return self.head(torch.cat(unpack_sequence(self.lstm(packed)[0])))[None]


class DroppedScores(Plain):
    """Drops scores with a function instead of a module, in train mode."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.out = weight_norm(nn.Linear(HIDDEN, HIDDEN))
        self.dropout = 0.1

    def forward(self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any) -> Any:
        hidden = self.embedding(input_ids)
        numbers = torch.repeat_interleave(cu_seq_lens_q.diff())
        mixed = scaled_dot_product_attention(
            hidden, hidden, hidden, attn_mask=numbers[:, None] == numbers
        )
        return self.head(dropout(self.out(mixed), self.dropout, self.training))


class MeanOfSequences(Plain):
    """Means with index_add, one for each sequence."""

    def forward(self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any) -> Any:
        lengths = cu_seq_lens_q.diff()
        hidden = self.embedding(input_ids[0])
        sums = hidden.new_zeros(len(lengths), HIDDEN)
        sums.index_add_(0, torch.repeat_interleave(lengths), hidden)
        return {"logits": self.head(sums / lengths[:, None]), "loss": None}


class Rounded(Plain):
    """Rounds each token to 8 bits with its own scale: a step where rounding errors jump."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        hidden = self.embedding(input_ids)
        scale = hidden.abs().amax(dim=-1, keepdim=True) / 127
        return self.head((hidden / scale).round() * scale)


class Unstable(Plain):
    """Amplifies rounding errors a million times: in float32 no digit is right."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(30))
        with torch.no_grad():
            for weights in self.layers.parameters():
                weights *= 3.5

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        for layer in self.layers:
            hidden = torch.sin(layer(hidden))
        return hidden


def correct(
    kind: Callable[[int], nn.Module], layout: str, *, trains: bool = False, **options: Any
) -> ZooModel:
    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return kind(vocab_size).to(device, dtype).train(trains)

    return ZooModel(kind.__name__, layout, make, **options)


CORRECT_MODELS = [
    correct(PackedLSTM, "packed"),
    correct(FinalStates, "packed", pooled=True),
    correct(PaddedOutputs, "packed"),
    correct(LastOutputs, "packed", pooled=True),
    correct(PackedInside, "padded"),
    correct(Trimmed, "padded"),
    correct(ForwardOverPadding, "padded", causal=True),
    correct(TorchEncoder, "padded"),
    correct(MaskedConvolutions, "padded"),
    correct(BrokenPadding, "padded", causal=True, options=LEFT),
    correct(HiddenCounts, "varlen", causal=True),
    correct(OneByOne, "varlen", causal=True),
    correct(DroppedScores, "varlen"),
    correct(MeanOfSequences, "varlen", pooled=True),
    correct(Rounded, "varlen", causal=True),
    correct(Unstable, "padded", causal=True),
]
DROPOUT_MODELS = [  # in train mode: the report has to name it
    correct(ForwardOverPadding, "padded", trains=True, causal=True),
    correct(TorchEncoder, "padded", trains=True),
    correct(OneByOne, "varlen", trains=True, causal=True),
    correct(DroppedScores, "varlen", trains=True),
]
