"""Correct models as people write them, with what makes them hard to judge for a program."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from mistakes import HIDDEN, PackedLSTM, Plain, Transformer
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)
from zoo import ALIGNED, LEFT, ROWS, Entry


class BothDirections(Plain):
    """Returns what nn.LSTM returns: outputs and (h_n, c_n)."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN // 2, 2, bidirectional=True, dropout=0.3)

    def forward(self, sequences: PackedSequence) -> Any:
        return self.lstm(sequences._replace(data=self.embedding(sequences.data)))


class FinalStates(BothDirections):
    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        _, (final, _) = super().forward(sequences)
        return torch.cat([final[-2], final[-1]], dim=1)


class PaddedOutputs(BothDirections):
    """Returns padded rows and lengths, as pad_packed_sequence does."""

    def forward(self, sequences: PackedSequence) -> Any:
        return pad_packed_sequence(super().forward(sequences)[0], batch_first=True)


class DataOnly(PackedLSTM):
    """Returns the data of a PackedSequence, [S, H]."""

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        return self.compute(sequences)[0].data


class PackedInside(Plain):
    """A bidirectional LSTM over padded rows, packed on the way."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN // 2, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(
            self.embedding(ids), mask.sum(dim=1), batch_first=True, enforce_sorted=False
        )
        outputs, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1]
        )
        return self.head(outputs)


class Trimmed(PackedInside):
    """Its outputs end with the longest sequence, not with the rectangle."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, mask)[:, : int(mask.sum(dim=1).max())]


class TorchEncoder(Plain):
    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        layer = nn.TransformerEncoderLayer(HIDDEN, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=~mask))


class BrokenPadding(Plain):
    """What lies in padding is not a number."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(ids)).masked_fill(~mask[..., None], math.nan)


class MaskedLogits(Plain):
    """Some logits are minus infinity, others -1e9."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.embedding(ids))
        logits[..., 0], logits[..., 1] = -math.inf, -1e9
        return logits


@dataclass
class Output:
    """What a model may return instead of a tuple."""

    loss: Any
    past: Any
    last_hidden_state: torch.Tensor


class FloatsInside(Plain):
    """Computes in float32 inside, and keeps a table that no .to() moves."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.waves = torch.sin(torch.arange(512)[:, None] * torch.arange(1, HIDDEN + 1) / 7)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any) -> Output:
        hidden = self.embedding(input_ids).float() + self.waves[position_ids]
        hidden = (hidden / hidden.norm(dim=-1, keepdim=True)).to(self.head.weight.dtype)
        return Output(None, torch.zeros(1), self.head(hidden))


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


class MeanOfSequences(Plain):
    """Means with index_add, one for each sequence."""

    def forward(self, input_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor, **_: Any) -> Any:
        lengths = cu_seq_lens_q.diff()
        hidden = self.embedding(input_ids[0])
        sums = hidden.new_zeros(len(lengths), HIDDEN)
        sums.index_add_(0, torch.repeat_interleave(lengths), hidden)
        return {"loss": None, "hidden": hidden[None], "logits": self.head(sums / lengths[:, None])}


class Unstable(Plain):
    """Amplifies rounding errors a million times: in float32 no digit is right."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        for _ in range(30):
            hidden = torch.sin(3.5 * self.projections(hidden)[..., :HIDDEN])
        return hidden


def call_with_block_mask(model: nn.Module, batch: Any) -> torch.Tensor:
    """Attend within sequences, in rows of one length, with the mask of the batch."""
    hidden = model.embedding(batch.ids)
    sees = batch.attention_mask()[:, 0] if batch.ids.ndim > 1 else batch.attention_mask()[0, 0]
    return model.head(scaled_dot_product_attention(hidden, hidden, hidden, attn_mask=sees))


def call_with_loss(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
    logits = model.head(model.embedding(batch.ids))
    loss = cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), reduction="sum")
    return {"loss": loss, "logits": logits}


def call_with_loss_first(model: nn.Module, batch: Any) -> tuple[torch.Tensor, ...]:
    return tuple(call_with_loss(model, batch).values())


Right = partial(Entry, dtype=torch.float32)
RIGHT_MODELS = [
    Right(BothDirections, "packed"),
    Right(FinalStates, "packed"),
    Right(PaddedOutputs, "packed"),
    Right(DataOnly, "packed", causal=True),
    Entry(PackedInside, "padded", trains=False),
    Right(Trimmed, "padded"),
    Right(TorchEncoder, "padded", trains=False, dtype=torch.bfloat16),
    Right(BrokenPadding, "padded", causal=True, options=LEFT),
    Right(MaskedLogits, "padded", causal=True, dtype=torch.float16),
    Right(Plain, "padded", causal=True, call=call_with_loss, options=LEFT),
    Right(Plain, "varlen", causal=True, call=call_with_loss_first, options=ROWS),
    Right(Transformer, "varlen", causal=True),
    Right(Plain, "varlen", causal=True, call=call_with_block_mask, options={**ROWS, **ALIGNED}),
    Right(FloatsInside, "varlen", causal=True),
    Right(OneByOne, "varlen", causal=True),
    Right(MeanOfSequences, "varlen"),
    Right(Unstable, "padded", causal=True),
]
# What is in train mode and drops something, and how the report names it.
DROPOUTS = {
    "BothDirections": ["lstm (LSTM, dropout=0.3)"],
    "FinalStates": ["lstm (LSTM, dropout=0.3)"],
    "PaddedOutputs": ["lstm (LSTM, dropout=0.3)"],
    "OneByOne": ["lstm (LSTM, dropout=0.2)"],
}
