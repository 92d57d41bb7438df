"""Train an LSTM that carries its state from batch to batch, and the same one without.

    python examples/stateful_language_model.py sample_data/stories.txt

Streams are cut every --max-tokens steps wherever that is. A model that starts each batch from zero
has seen only a few of the tokens before; one that carries its state has seen the whole document
so far. Gradients end at the cuts either way (truncated backpropagation through time).

`nn.LSTM` cannot reset its state inside a batch, so `forward` cuts the batch at the steps where a
document begins, and sets the state of those streams to zero. That is exact: each document gets the
outputs that it has alone. It takes one call of the LSTM for each such step. If most steps have one,
as with very short documents and many streams, use `packed` batches: they need no state.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from torch import nn
from torch.utils.data import DataLoader

import seqpack_cli as seqpack

State = tuple[torch.Tensor, torch.Tensor] | None  # h and c of an LSTM, each (layers, B, H)


class LanguageModel(nn.Module):
    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, batch: seqpack.StreamTensors, state: State) -> tuple[torch.Tensor, State]:
        """Return the scores (T, B, vocabulary) and the last state; None is a state of zeros."""
        inputs, outputs = self.embedding(batch.ids), []
        steps = batch.resets[1:].any(dim=1).nonzero()[:, 0] + 1
        for start, end in pairwise([0, *steps.tolist(), len(inputs)]):
            if state is not None:
                state = tuple(part * ~batch.resets[start, :, None] for part in state)
            output, state = self.lstm(inputs[start:end], state)
            outputs.append(output)
        return self.head(torch.cat(outputs)), state


def measure(
    model: LanguageModel, batches: Iterable[seqpack.StreamTensors], *, carries: bool
) -> Iterable[tuple[torch.Tensor, int]]:
    """Yield the sum of the losses of each batch, and the number of its labels."""
    state = None
    for batch in batches:
        scores, state = model(batch, state)
        state = tuple(part.detach() for part in state) if carries else None  # gradients end here
        scores, labels = scores.flatten(0, 1), batch.labels.flatten()
        loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
        yield loss, int((labels != -100).sum())


def train(shards: Path, carries: bool, hidden_size: int, epochs: int, device: str) -> list[float]:
    """Train on one split; return the perplexity on the other after each epoch."""
    splits = (shards / "train", shards / "validation")
    train_set, held_out = (seqpack.ShardDataset(path, labels="next") for path in splits)
    torch.manual_seed(0)
    model = LanguageModel(train_set.vocab_size, hidden_size).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = seqpack.EpochSampler(train_set, shuffle=False)  # streams keep their order
    loader = DataLoader(train_set, batch_size=None, sampler=sampler)
    perplexities = []
    for _ in range(epochs):
        moved = (batch.to(device) for batch in sampler.track(loader))
        for loss, count in measure(model, moved, carries=carries):
            optimizer.zero_grad()
            (loss / max(count, 1)).backward()
            optimizer.step()
        with torch.no_grad():
            moved = (batch.to(device) for batch in held_out)
            found = [(loss.item(), count) for loss, count in measure(model, moved, carries=carries)]
        total, number = (sum(values) for values in zip(*found, strict=True))
        perplexities.append(math.exp(total / number))
    return perplexities


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--tokenizer", default="bytes", show_default=True, help="Must have <bos> and <eos>.")
@click.option("--document", default="line", show_default=True, help="line, paragraph or file.")
@click.option("--batch-size", default=8, show_default=True, help="Streams.")
@click.option("--max-tokens", default=16, show_default=True, help="Steps of a batch.")
@click.option("--hidden-size", default=128, show_default=True)
@click.option("--epochs", default=6, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(inputs, tokenizer, document, batch_size, max_tokens, **training) -> None:
    """Train on the texts of INPUT with and without a carried state; print both perplexities."""
    with TemporaryDirectory() as folder:
        tokens, shards = Path(folder) / "tokens", Path(folder) / "shards"
        ends = {"bos": "<bos>", "eos": "<eos>", "document": document}
        seqpack.tokenize(inputs, tokens, tokenizer=tokenizer, **ends)
        streams = {"batch_size": batch_size, "max_tokens": max_tokens, "shuffle": True}
        shares = "train=0.9,validation=0.1"  # of the documents
        seqpack.pack(tokens, shards, layout="streams", split=shares, **streams)
        without, carried = (train(shards, carries, **training) for carries in (False, True))
    for epoch, pair in enumerate(zip(without, carried, strict=True), start=1):
        click.echo("epoch {}: perplexity {:.2f} without state, {:.2f} carried".format(epoch, *pair))


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
