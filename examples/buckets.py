"""Train a compiled model on buckets: one compilation per bucket key.

    python examples/buckets.py sample_data --max-tokens 4096

MXNet's BucketingModule had one program per bucket key, all with the same parameters; torch.compile
makes one per shape. With `--buckets auto --last-batch pad` all batches of a bucket have the same
shape, so there are as many shapes and compilations as keys; without buckets nearly every batch has
its own shape. The largest key runs first, so that too little memory shows at once.

On a GPU, `--mode reduce-overhead` also records a CUDA graph per shape, all in one pool of memory.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from torch import nn
from torch._dynamo import lookup_backend
from torch.utils.data import DataLoader

import seqpack_cli as seqpack


class CountingBackend:
    """A backend of torch.compile that counts its compilations; inductor has modes."""

    def __init__(self, name: str, mode: str | None = None) -> None:
        self.backend = lookup_backend(name)
        self.options = {"config_patches": torch._inductor.list_mode_options(mode)} if mode else {}
        self.num_compilations = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.num_compilations += 1
        return self.backend(graph, inputs, **self.options)


class LanguageModel(nn.Module):
    """Two causal convolutions, which see no later token, and so no padding on the right."""

    def __init__(self, vocab_size: int, hidden_size: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.first = nn.Conv1d(hidden_size, hidden_size, kernel_size=3)
        self.second = nn.Conv1d(hidden_size, hidden_size, kernel_size=3)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids).transpose(1, 2)  # (B, H, width)
        for layer in (self.first, self.second):
            hidden = hidden + layer(nn.functional.pad(hidden, (2, 0))).relu()
        logits = self.head(hidden.transpose(1, 2))  # (B, width, vocabulary)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def find_shapes(dataset: seqpack.ShardDataset) -> dict[tuple[int, ...], int]:
    """Return each shape of a batch, largest width first, with the index of one such batch."""
    shapes = {tuple(dataset[number].ids.shape): number for number in range(len(dataset))}
    return dict(sorted(shapes.items(), key=lambda item: item[0][1], reverse=True))


def train(dataset: seqpack.ShardDataset, backend: Any, steps: int, device: str) -> list[float]:
    """Train on one batch of each shape, then on random batches; return the loss of each step."""
    torch.manual_seed(0)
    model = LanguageModel(dataset.vocab_size).to(device)
    compiled = torch.compile(model, backend=backend, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    shapes = find_shapes(dataset)
    loader = DataLoader(dataset, batch_size=None, shuffle=True)
    batches = chain(map(dataset.__getitem__, shapes.values()), chain.from_iterable(repeat(loader)))
    losses = []
    # torch stops compiling above this limit, which torch 2.6 and newer also call recompile_limit
    with torch._dynamo.config.patch(cache_size_limit=len(shapes)):
        for batch in islice(batches, len(shapes) + steps):
            batch = batch.to(device)
            loss = compiled(batch.ids, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--max-tokens", default=4096, show_default=True, help="Cells per batch, at most.")
@click.option("--steps", default=20, show_default=True, help="Besides one per shape.")
@click.option("--backend", "backend_name", default="inductor", show_default=True)
@click.option("--mode", help="For inductor: reduce-overhead records CUDA graphs.")
@click.option("--device", default="cpu", show_default=True)
def main(inputs, max_tokens, steps, backend_name, mode, device) -> None:
    """Train on the texts of INPUT in buckets, and count compilations and shapes."""
    with TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens"
        seqpack.tokenize(inputs, tokens, max_length=512)
        # a row of one token has no next token to learn
        options = seqpack.PackOptions(layout="padded", max_tokens=max_tokens, drop_shorter=2)
        seqpack.pack(tokens, Path(folder) / "plain", options)
        options = replace(options, buckets="auto", last_batch="pad")
        seqpack.pack(tokens, Path(folder) / "buckets", options)
        plain = find_shapes(seqpack.ShardDataset(Path(folder) / "plain"))
        dataset = seqpack.ShardDataset(Path(folder) / "buckets", labels="next")
        backend = CountingBackend(backend_name, mode)
        losses = train(dataset, backend, steps, device)
    click.echo(f"{len(losses)} steps: first loss {losses[0]:.3f}, last loss {losses[-1]:.3f}")
    click.echo(f"bucket keys: {', '.join(map(str, dataset.bucket_keys))}")
    click.echo(f"{backend.num_compilations} compilations; {len(plain)} shapes without buckets")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
