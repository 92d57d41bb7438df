"""Train a word language model on any text: an LSTM over packed batches, without padding.

    python examples/word_language_model.py sample_data/stories.txt --work words --max-tokens 256

All files are in the folder --work. The same command again, after Ctrl-C or with more --steps,
resumes from the last checkpoint; on a CPU with the results of an uninterrupted run, bit for bit.
"""

import math
from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path

import click
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

import seqpack_cli as seqpack


class LanguageModel(nn.Module):
    def __init__(self, vocab_size: int, hidden_size: int, *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size)
        self.head = nn.Linear(hidden_size, vocab_size)
        self.dropout = nn.Dropout(0.3)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, sequences: PackedSequence) -> torch.Tensor:
        embedded = self.dropout(self.embedding(sequences.data))
        outputs, _ = self.lstm(sequences._replace(data=embedded))
        return self.head(self.dropout(outputs.data))  # (S, vocabulary)


def make_shards(inputs: tuple[str, ...], work: Path, vocab_size: int, max_tokens: int) -> list:
    """Make tokenizer, tokens and shards unless they exist; return the folders of both splits."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = work / "tokenizer.json"
    if not tokenizer.exists():
        words = seqpack.TrainTokenizerOptions(model="wordlevel", vocab_size=vocab_size)
        seqpack.train_tokenizer(inputs, tokenizer, words)
    ends = seqpack.TokenizeOptions(str(tokenizer), bos="<bos>", eos="<eos>", max_length=128)
    seqpack.tokenize(inputs, work / "tokens", ends)
    # random batches of similar lengths, without blank lines, which are only <bos> and <eos>
    rows = {"max_tokens": max_tokens, "shuffle": True, "window": 1024, "drop_shorter": 3}
    shares = "train=0.9,validation=0.1"  # of the lines: the pieces of one stay together
    seqpack.pack(work / "tokens", work / "shards", seqpack.PackOptions(split=shares, **rows))
    return [work / "shards" / name for name in ("train", "validation")]


def measure(model: nn.Module, batch: seqpack.PackedTensors) -> tuple[torch.Tensor, int]:
    """Return the sum of the losses of all tokens that have a next one, and their number."""
    loss = nn.functional.cross_entropy(model(batch.sequences), batch.labels, reduction="sum")
    return loss, len(batch.labels) - len(batch.lengths)  # a row's last label is -100


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[seqpack.PackedTensors]) -> float:
    model.eval()
    measured = [measure(model, batch) for batch in batches]
    model.train()
    return sum(loss.item() for loss, _ in measured) / sum(count for _, count in measured)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder of the run.")
@click.option("--vocab-size", default=10000, show_default=True, help="Words, at most.")
@click.option("--max-tokens", default=2048, show_default=True, help="Tokens per batch, at most.")
@click.option("--hidden-size", default=256, show_default=True)
@click.option("--tied/--untied", default=True, help="Whether head and embedding share weights.")
@click.option("--steps", default=250, show_default=True, help="Total, with earlier runs.")
@click.option("--every", default=50, show_default=True, help="Steps between reports.")
@click.option("--device", default="cpu", show_default=True)
def main(inputs, work, vocab_size, max_tokens, hidden_size, tied, steps, every, device) -> None:
    """Train on the texts of INPUT, from the checkpoint in --work if there is one."""
    shards = make_shards(inputs, work, vocab_size, max_tokens)
    dataset, held_out = (seqpack.ShardDataset(path, labels="next") for path in shards)
    sampler = seqpack.EpochSampler(dataset)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    batches = chain.from_iterable(repeat(sampler.track(loader)))  # epoch after epoch
    torch.manual_seed(0)
    model = LanguageModel(dataset.vocab_size, hidden_size, tied=tied).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    parts = {"model": model, "optimizer": optimizer, "sampler": sampler}
    checkpoint, state = work / "checkpoint.pt", {"step": 0}
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    total_loss, total_count = 0.0, 0
    for step in range(state["step"] + 1, steps + 1):
        batch = next(batches).to(device)
        torch.manual_seed(step)  # after next(), which may draw one: the same dropout when resumed
        loss, count = measure(model, batch)
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
        total_loss, total_count = total_loss + loss.item(), total_count + count
        if step % every == 0 or step == steps:
            train, total_loss, total_count = total_loss / total_count, 0.0, 0
            test = evaluate(model, (batch.to(device) for batch in held_out))
            for name, mean in (("train", train), ("held out", test)):
                click.echo(f"step {step}: {name} loss {mean:.6f}, perplexity {math.exp(mean):.1f}")
            values = {name: part.state_dict() for name, part in parts.items()}
            torch.save({"step": step, **values}, work / "checkpoint.new")
            (work / "checkpoint.new").replace(checkpoint)  # atomic: never half a checkpoint


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
