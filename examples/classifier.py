"""Classify the language of texts: a GRU over padded batches, made anew in every epoch.

    python examples/classifier.py sample_data/languages.jsonl --output predictions.jsonl

The input is JSON lines with a text, an id and a label. Batches hold rows of similar lengths, so
the rows are not in the order of the documents: `original_indices` puts the predictions back into
the order of the input, and `store.locate` finds the record of each. Empty texts get no prediction.
"""

from __future__ import annotations

import json
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader

import seqpack_cli as seqpack


class Classifier(nn.Module):
    def __init__(self, vocab_size: int, num_labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 64)
        self.gru = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, num_labels)

    def forward(self, batch: seqpack.PaddedTensors) -> Tensor:
        embedded = self.embedding(batch.ids)  # (B, width, 64)
        # rows are longest first and lengths are on the CPU, as torch requires
        packed = pack_padded_sequence(embedded, batch.lengths, batch_first=True)
        _, (forward, backward) = self.gru(packed)
        return self.head(torch.cat([forward, backward], dim=1))  # (B, labels)


def make_loader(batches: seqpack.StoreBatches, *, shuffle: bool) -> DataLoader:
    sampler = seqpack.EpochSampler(batches, shuffle=shuffle)
    return DataLoader(batches.dataset, batch_sampler=sampler, collate_fn=batches.make_collate())


def find_records(store: seqpack.TokenStore) -> list[dict[str, Any]]:
    """Return the JSON object that each sequence of the store came from."""
    paths = [source["path"] for source in store.manifest["sources"]]
    lines = {path: Path(path).read_bytes().split(b"\n") for path in paths}
    origins = [store.locate(index) for index in range(len(store))]
    return [json.loads(lines[origin.source][origin.record - 1]) for origin in origins]


def train(model: Classifier, batches: seqpack.StoreBatches, labels: Tensor, steps: int) -> None:
    """Train on labels, int64, one per sequence of the store; those of -100 are ignored."""
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    epochs = chain.from_iterable(repeat(make_loader(batches, shuffle=True)))
    for step, batch in enumerate(islice(epochs, steps), start=1):
        targets = labels[batch.original_indices].to(device)
        # not the mean, which is NaN for a batch whose labels are all -100
        loss = nn.functional.cross_entropy(model(batch.to(device)), targets, reduction="sum")
        loss = loss / len(targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            click.echo(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def predict(model: Classifier, batches: seqpack.StoreBatches) -> Tensor:
    """Return the predicted label of every sequence, in the order of the store."""
    model.eval()
    device = next(model.parameters()).device
    predictions = torch.empty(len(batches.dataset), dtype=torch.int64)
    for batch in make_loader(batches, shuffle=False):
        predictions[batch.original_indices] = model(batch.to(device)).argmax(dim=1).cpu()
    return predictions


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", type=click.Path(path_type=Path), required=True)
@click.option("--label-field", default="language", show_default=True)
@click.option("--id-field", default="id", show_default=True)
@click.option("--steps", default=200, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(inputs, output, label_field, id_field, steps, device) -> None:
    """Train on four of five documents of INPUT, and write predictions for all of them."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        store_path = Path(folder) / "tokens"
        # the first 100 bytes are enough; truncated, a document stays one sequence
        options = seqpack.TokenizeOptions("bytes", max_length=100, overflow="truncate")
        manifest, _ = seqpack.tokenize(inputs, store_path, options)
        records = find_records(seqpack.open_store(store_path))
        names = sorted({record[label_field] for record in records})
        labels = torch.tensor([names.index(record[label_field]) for record in records])
        is_held_out = torch.arange(len(labels)) % 5 == 0
        rows = seqpack.PackOptions(layout="padded", batch_size=16, window=64)
        batches = seqpack.StoreBatches(seqpack.StoreDataset(store_path), rows)
        model = Classifier(manifest["vocab_size"], len(names)).to(device)
        train(model, batches, labels.masked_fill(is_held_out, -100), steps)
        predictions = predict(model, batches)
    lines = [
        json.dumps({"id": record[id_field], "label": record[label_field], "found": names[number]})
        for record, number in zip(records, predictions.tolist(), strict=True)
    ]
    output.write_text("\n".join(lines) + "\n")
    for name, rows in (("trained on", ~is_held_out), ("held out", is_held_out)):
        accuracy = (predictions == labels)[rows].float().mean().item()
        click.echo(f"{name}: {accuracy:.1%} of {rows.sum()} documents")


if __name__ == "__main__":
    main()
