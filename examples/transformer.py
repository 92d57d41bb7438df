"""Train a small transformer on varlen rows: several sequences in one row, nothing padded.

    python examples/transformer.py sample_data/stories.txt --steps 100

`cu_seqlens` says where each sequence of a row begins; the mask made from it keeps tokens from
attending to other sequences. Its memory grows with the square of the row. For long rows on a GPU,
use an attention kernel for variable lengths, which takes cu_seqlens and max_seqlen of the batch
instead of the mask.
"""

from __future__ import annotations

from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader

import seqpack_cli as seqpack

MAX_LENGTH = 128  # tokens per sequence; longer documents are split


class Block(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)
        self.to_heads = nn.Linear(hidden_size, 3 * hidden_size)
        self.from_heads = nn.Linear(hidden_size, hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size),
            nn.GELU(),
            nn.Linear(4 * hidden_size, hidden_size),
        )

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = self.to_heads(self.norm1(hidden)).unflatten(1, (3, self.num_heads, -1))
        # (S, 3, heads, size) -> query, key and value of (1, heads, S, size), a batch of one row
        query, key, value = heads.permute(1, 2, 0, 3).unsqueeze(1)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.from_heads(attended.squeeze(0).transpose(0, 1).flatten(1))
        return hidden + self.feed_forward(self.norm2(hidden))  # (S, H)


class Transformer(nn.Module):
    def __init__(self, vocab_size: int, hidden_size: int = 128, num_layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        self.positions = nn.Embedding(MAX_LENGTH, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, num_heads=4) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, batch: seqpack.VarlenTensors) -> torch.Tensor:
        mask = make_mask(batch.cu_seqlens)
        hidden = self.tokens(batch.ids) + self.positions(batch.position_ids)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return self.head(self.norm(hidden))  # (S, vocabulary)


def make_mask(cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Return the causal mask: a token attends to itself and earlier tokens of its sequence.

    Args:
        cu_seqlens: int32[B + 1].

    Returns:
        bool[S, S], True where the row's token attends to the column's.
    """
    lengths = cu_seqlens.diff()
    sequences = torch.repeat_interleave(lengths)  # (S,): 0 0 0 1 1 for lengths 3 and 2
    return (sequences[:, None] == sequences).tril()


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--tokenizer", default="bytes", show_default=True, help="Must have <bos> and <eos>.")
@click.option("--max-tokens", default=1024, show_default=True, help="Tokens of a row.")
@click.option("--steps", default=100, show_default=True)
@click.option("--every", default=10, show_default=True, help="Steps between reports.")
@click.option("--device", default="cpu", show_default=True)
def main(inputs, tokenizer, max_tokens, steps, every, device) -> None:
    """Train on the texts of INPUT to predict the next token."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        tokens, shards = Path(folder) / "tokens", Path(folder) / "shards"
        options = seqpack.TokenizeOptions(
            tokenizer, bos="<bos>", eos="<eos>", max_length=MAX_LENGTH
        )
        seqpack.tokenize(inputs, tokens, options)
        rows = seqpack.PackOptions(layout="varlen", max_tokens=max_tokens)
        seqpack.pack(tokens, shards, rows)
        dataset = seqpack.ShardDataset(shards, labels="next")
        loader = DataLoader(dataset, batch_size=None, shuffle=True)
        model = Transformer(dataset.vocab_size).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        epochs = chain.from_iterable(repeat(loader))
        for step, batch in enumerate(islice(epochs, steps), start=1):
            batch = batch.to(device)
            losses = cross_entropy(model(batch), batch.labels, reduction="sum")  # ignores -100
            loss = losses / (batch.labels != -100).sum().clamp(min=1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % every == 0:
                click.echo(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
