"""Classify the language of texts: a GRU over padded batches, made anew in every epoch.

    python examples/classifier.py sample_data/languages.jsonl --output predictions.tsv

The label and the id of each record come along as columns, beside the rows of every batch.
"""

from itertools import chain, islice, repeat
from tempfile import TemporaryDirectory

import click
import torch
from torch import nn
from torch.utils.data import DataLoader

import seqpack_cli as seqpack


class Classifier(nn.Module):
    def __init__(self, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 64)
        self.gru = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, num_classes)

    def forward(self, batch: seqpack.PaddedTensors) -> torch.Tensor:
        embedded = self.embedding(batch.ids)  # (B, width, 64), rows longest first
        packed = nn.utils.rnn.pack_padded_sequence(embedded, batch.lengths, batch_first=True)
        return self.head(torch.cat([*self.gru(packed)[1]], dim=1))  # (B, classes)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", required=True, type=click.File("w"))
@click.option("--label", default="language", show_default=True, help="Field of the label.")
@click.option("--steps", default=200, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(inputs, output, label, steps, device) -> None:
    """Train on four of five documents of INPUT, and write what is predicted for the others."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        keep = {"keep": [f"{label}:class", "id:text"], "max_length": 100, "overflow": "truncate"}
        manifest, _ = seqpack.tokenize(inputs, f"{folder}/s", seqpack.TokenizeOptions(**keep))
        dataset = seqpack.StoreDataset(f"{folder}/s")
        batches = seqpack.StoreBatches(dataset, seqpack.PackOptions("padded", batch_size=16))
        sampler, collate = seqpack.EpochSampler(batches), batches.make_collate(labels=label)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
        model = Classifier(manifest["vocab_size"], len(dataset.class_names(label))).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for batch in islice(chain.from_iterable(repeat(loader)), steps):
            batch = batch.to(device)
            is_held_out = (batch.original_indices % 5 == 0).to(device)
            labels = batch.labels.masked_fill(is_held_out, -100)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), labels, reduction="sum").backward()
            optimizer.step()
        held_out = collate([dataset[index] for index in range(0, len(dataset), 5)]).to(device)
        found = model(held_out).argmax(dim=1)
    for name, number in zip(held_out.columns["id"], found.tolist(), strict=True):
        click.echo(f"{name}\t{dataset.class_names(label)[number]}", file=output)
    click.echo(f"held out: {(found == held_out.labels).float().mean():.1%} of {len(found)}")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
