"""Translate dates into ISO form: a GRU encoder-decoder with attention over packed pairs.

    python examples/translation.py --num-pairs 20000

It draws the pairs itself: "the 5th of March, 2021" and "2021-03-05". Each side of a batch is a
PackedSequence, longest first; torch brings the decoder's rows into the encoder's order. One date in
ten is held out, chosen by its text: it is in no other form among those that are learned.
"""

import json
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

FORMS = "{0:%B} {0.day}, {0.year}|the {0.day}{1} of {0:%B}, {0.year}|{0:%a} {0.day} {0:%b} '{0:%y}"


class Translator(nn.Module):
    def __init__(self, num_written: int, num_iso: int, hidden_size: int = 128) -> None:
        super().__init__()
        self.written, self.iso = nn.Embedding(num_written, 64), nn.Embedding(num_iso, 64)
        self.encoder = nn.GRU(64, hidden_size // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(64, hidden_size, batch_first=True)
        self.head = nn.Linear(2 * hidden_size, num_iso)

    def encode(self, sequences: PackedSequence) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the decoder attends to (B, T, hidden), its mask, and the first state."""
        outputs, state = self.encoder(sequences._replace(data=self.written(sequences.data)))
        memory, lengths = pad_packed_sequence(outputs, batch_first=True)
        mask = (torch.arange(memory.shape[1]) < lengths[:, None]).to(memory.device)
        return memory, mask, torch.cat([*state], dim=1)[None]

    def attend(self, outputs: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        found = scaled_dot_product_attention(outputs, memory, memory, mask[:, None])
        return self.head(torch.cat([outputs, found], dim=2))  # (B, U, ids)

    def forward(self, pair: seqpack.PairTensors) -> Tensor:
        memory, mask, state = self.encode(pair.encoder.sequences)
        sequences = pair.decoder.sequences  # by its sorted_indices torch finds the state of a row
        outputs, _ = self.decoder(sequences._replace(data=self.iso(sequences.data)), state)
        return self.attend(pad_packed_sequence(outputs, batch_first=True)[0], memory, mask)

    @torch.no_grad()
    def translate(self, sequences: PackedSequence, ids: Tensor, num_steps: int) -> Tensor:
        """Return the likeliest id after those before it, num_steps times, from ids (B, 1) on."""
        memory, mask, state = self.encode(sequences)
        for _ in range(num_steps):
            outputs, state = self.decoder(self.iso(ids[:, -1:]), state)
            ids = torch.cat([ids, self.attend(outputs, memory, mask).argmax(dim=2)], dim=1)
        return ids[:, 1:]


def make_shards(num_pairs: int, folder: Path) -> None:
    """Draw dates from 1950 to 2049, tokenize both sides of each pair, and pack them."""
    with (folder / "pairs.jsonl").open("w") as file:
        for number in torch.randint(36_525, (num_pairs,)).tolist():
            day = date(1950, 1, 1) + timedelta(number)
            suffix = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10 * (day.day // 10 != 1), "th")
            written = FORMS.split("|")[number % 3].format(day, suffix)  # one form for each date
            file.write(json.dumps({"written": written, "iso": day.isoformat()}) + "\n")
    for field, ends in (("written", {}), ("iso", {"bos": "<bos>", "eos": "<eos>"})):
        documents = seqpack.DocumentOptions(text_field=field)
        options = seqpack.TokenizeOptions("bytes", documents=documents, **ends)
        seqpack.tokenize(folder / "pairs.jsonl", folder / field, options)
    packing = seqpack.PackOptions(max_tokens=1024, window=1024, split="train=0.9,test=0.1")
    seqpack.pack(folder / "written", folder / "shards", packing, decoder=folder / "iso")


def pad_labels(pair: seqpack.PairTensors) -> Tensor:
    """Return the labels (B, U) in the encoder's order of rows, -100 behind them."""
    sequences = pair.decoder.sequences._replace(data=pair.labels)
    return pad_packed_sequence(sequences, batch_first=True, padding_value=-100)[0]


def find_exact(model: Translator, pair: seqpack.PairTensors) -> Tensor:
    """Return which rows are translated without a mistake, their end included, bool (B)."""
    labels, bos = pad_labels(pair), pair.decoder.sequences.data[0]  # with which all rows begin
    found = model.translate(pair.encoder.sequences, bos.expand(len(labels), 1), labels.shape[1])
    return ((found == labels) | (labels < 0)).all(dim=1)


@click.command()
@click.option("--num-pairs", default=20_000, show_default=True)
@click.option("--steps", default=300, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(num_pairs, steps, device) -> None:
    """Train on nine of ten dates, and print how many of the others are translated exactly."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        make_shards(num_pairs, Path(folder))
        pairs = seqpack.ShardDataset(f"{folder}/shards/train", labels="next")
        held_out = seqpack.ShardDataset(f"{folder}/shards/test", labels="next")
        model = Translator(pairs.vocab_size, pairs.decoder_vocab_size).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        batches = chain.from_iterable(repeat(DataLoader(pairs, batch_size=None, shuffle=True)))
        for step, batch in enumerate(islice(batches, steps), start=1):
            pair = batch.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(pair).transpose(1, 2), pad_labels(pair))  # ignores -100
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                click.echo(f"step {step}: loss {loss.item():.4f}")
        exact = torch.cat([find_exact(model, pair.to(device)) for pair in held_out])
    click.echo(f"held out: {exact.float().mean():.1%} of {len(exact):,} dates exactly right")


if __name__ == "__main__":
    main()
