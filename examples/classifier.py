"""Classify the language of texts: a GRU over padded batches, made anew in every epoch.

    python examples/classifier.py sample_data/languages.jsonl --output predictions.tsv

The label and the id of each record come along as columns, beside the rows of every batch. One
document in five is held out, chosen by its text: equal texts are on the same side.
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


def make_loader(
    dataset: seqpack.StoreDataset, split: str, label: str, *, shuffle: bool
) -> DataLoader:
    options = seqpack.PackOptions(
        "padded", batch_size=16, split="train=0.8,test=0.2", split_name=split
    )
    batches = seqpack.StoreBatches(dataset, options)
    sampler = seqpack.EpochSampler(batches, shuffle=shuffle)
    collate = batches.make_collate(labels=label)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)


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
        manifest, _ = seqpack.tokenize(inputs, f"{folder}/s", **keep)
        dataset = seqpack.StoreDataset(f"{folder}/s")
        classes = dataset.class_names(label)
        loader = make_loader(dataset, "train", label, shuffle=True)
        held_out = make_loader(dataset, "test", label, shuffle=False)
        model = Classifier(manifest["vocab_size"], len(classes)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for batch in islice(chain.from_iterable(repeat(loader)), steps):
            batch = batch.to(device)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), batch.labels, reduction="sum").backward()
            optimizer.step()
        num_right = num_found = 0
        for batch in held_out:
            found = model(batch.to(device)).argmax(dim=1).tolist()
            for name, number in zip(batch.columns["id"], found, strict=True):
                click.echo(f"{name}\t{classes[number]}", file=output)
            num_right += sum(map(int.__eq__, found, batch.labels.tolist()))
            num_found += len(found)
    click.echo(f"held out: {num_right / num_found:.1%} of {num_found}")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
