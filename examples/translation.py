"""Translate dates into ISO form: a GRU encoder-decoder with attention over packed pairs.

    python examples/translation.py --num-pairs 20000

The pairs are drawn here: "the 5th of March, 2021" and "2021-03-05". Both sides are PackedSequences,
each longest first in its own order; torch brings the decoder's rows into the encoder's order. One
date in ten is held out, chosen by how it is written, and translated token by token.
"""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils.data import DataLoader

import seqpack_cli as seqpack

FORMS = (
    *("{0:%B} {0.day}, {0.year}", "{0.day} {0:%b} {0.year}", "{0:%A}, {0:%B} {0.day}{1} {0.year}"),
    *(
        "the {0.day}{1} of {0:%B}, {0.year}",
        "{0:%a} {0.day}. {0:%b} '{0:%y}",
        "{0.year}, {0:%B %d}",
    ),
)


class Translator(nn.Module):
    def __init__(self, num_read: int, num_written: int, hidden_size: int = 128) -> None:
        super().__init__()
        self.read, self.written = nn.Embedding(num_read, 64), nn.Embedding(num_written, 64)
        self.encoder = nn.GRU(64, hidden_size // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(64, hidden_size, batch_first=True)
        self.head = nn.Linear(2 * hidden_size, num_written)

    def encode(self, sequences: PackedSequence) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the decoder reads, its mask, and the state in which it begins."""
        outputs, state = self.encoder(sequences._replace(data=self.read(sequences.data)))
        memory, lengths = pad_packed_sequence(outputs, batch_first=True)  # (B, T, hidden)
        mask = torch.arange(memory.shape[1]) < lengths[:, None]
        return memory, mask.to(memory.device), torch.cat([*state], dim=1)[None]

    def attend(self, outputs: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return a score for each id after each output of the decoder, (B, U, ids)."""
        found = scaled_dot_product_attention(outputs, memory, memory, mask[:, None])
        return self.head(torch.cat([outputs, found], dim=2))

    def forward(self, pair: seqpack.PairTensors) -> Tensor:
        memory, mask, state = self.encode(pair.encoder.sequences)
        sequences = pair.decoder.sequences  # with torch's sorted_indices: rows match the state's
        outputs, _ = self.decoder(sequences._replace(data=self.written(sequences.data)), state)
        return self.attend(pad_packed_sequence(outputs, batch_first=True)[0], memory, mask)

    @torch.no_grad()
    def translate(self, sequences: PackedSequence, bos: Tensor, num_steps: int) -> Tensor:
        """Return the most likely id after each one that was chosen, (B, num_steps)."""
        memory, mask, state = self.encode(sequences)
        ids = bos[:, None]
        for _ in range(num_steps):
            outputs, state = self.decoder(self.written(ids[:, -1:]), state)
            found = self.attend(outputs, memory, mask).argmax(dim=2)
            ids = torch.cat([ids, found], dim=1)
        return ids[:, 1:]


def write_pairs(num_pairs: int, folder: Path) -> None:
    draw = random.Random(0)
    with (folder / "dates.jsonl").open("w") as file:
        for _ in range(num_pairs):
            day = date(1950, 1, 1) + timedelta(draw.randrange(36_525))  # '49 is always 2049
            suffix = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 * (day.day // 10 != 1), "th")
            record = {"written": draw.choice(FORMS).format(day, suffix), "iso": day.isoformat()}
            file.write(json.dumps(record) + "\n")


def make_shards(num_pairs: int, folder: Path) -> None:
    write_pairs(num_pairs, folder)
    ends = {"bos": "<bos>", "eos": "<eos>"}
    for field, options in (("written", {}), ("iso", ends)):
        documents = seqpack.DocumentOptions(text_field=field)
        tokens = seqpack.TokenizeOptions("bytes", documents=documents, **options)
        seqpack.tokenize(folder / "dates.jsonl", folder / field, tokens)
    rows = seqpack.PackOptions(
        max_tokens=2048, shuffle=True, window=1024, split="train=0.9,test=0.1"
    )
    seqpack.pack(folder / "written", folder / "shards", rows, decoder=folder / "iso")


def pad_labels(pair: seqpack.PairTensors) -> Tensor:
    """Return labels in the order of the encoder's rows, -100 after the last, (B, U)."""
    sequences = pair.decoder.sequences._replace(data=pair.labels)
    return pad_packed_sequence(sequences, batch_first=True, padding_value=-100)[0]


def train(model: Translator, pairs: Iterable[seqpack.PairTensors], steps: int) -> None:
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, pair in enumerate(islice(chain.from_iterable(repeat(pairs)), steps), start=1):
        moved = pair.to(device)
        loss = cross_entropy(model(moved).transpose(1, 2), pad_labels(moved))  # ignores -100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            click.echo(f"step {step}: loss {loss.item():.4f}")


def find_exact(model: Translator, pairs: Iterable[seqpack.PairTensors]) -> Iterator[Tensor]:
    """Yield for each batch which rows are translated without a mistake, their ends too."""
    for pair in pairs:
        moved = pair.to(next(model.parameters()).device)
        labels = pad_labels(moved)
        bos = moved.decoder.sequences.data[: len(labels)]  # the first step of all rows
        found = model.translate(moved.encoder.sequences, bos, labels.shape[1])
        yield ((found == labels) | (labels < 0)).all(dim=1).cpu()


@click.command()
@click.option("--num-pairs", default=20_000, show_default=True)
@click.option("--steps", default=400, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(num_pairs, steps, device) -> None:
    """Train on nine of ten dates, and print how many of the others are translated exactly."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        make_shards(num_pairs, Path(folder))
        dataset, held_out = (
            seqpack.ShardDataset(Path(folder) / "shards" / name, labels="next")
            for name in ("train", "test")
        )
        model = Translator(dataset.vocab_size, dataset.vocab_size).to(device)
        train(model, DataLoader(dataset, batch_size=None, shuffle=True), steps)
        exact = torch.cat([*find_exact(model.eval(), held_out)])
    click.echo(f"held out: {exact.float().mean():.1%} of {len(exact):,} dates exactly right")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
