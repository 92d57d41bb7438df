"""Tag the words of Python code with what they are: a bidirectional LSTM over packed batches.

    python examples/tagger.py examples

Lines of code become records of words and tags (keyword, function, attribute, ...). The tag goes to
the first token of its word, here its first byte. One line in five is held out, chosen by its text:
equal lines are on the same side.
"""

import json
import keyword
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

import seqpack_cli as seqpack

TAGS = {tokenize.NAME: "name", tokenize.NUMBER: "number", tokenize.STRING: "string"}


class Tagger(nn.Module):
    def __init__(self, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 32)
        self.lstm = nn.LSTM(32, 64, bidirectional=True)
        self.head = nn.Linear(128, num_classes)

    def forward(self, sequences: PackedSequence) -> Tensor:
        outputs, _ = self.lstm(sequences._replace(data=self.embedding(sequences.data)))
        return self.head(outputs.data)  # (S, classes)


def iter_lines(path: Path) -> Iterator[dict[str, list[str]]]:
    """Yield the words and tags of each line of code."""
    line: dict[str, list[str]] = {"words": [], "tags": []}
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.string.strip()]
    for token, following in pairwise(tokens[1:]):  # the first is the encoding
        tag = TAGS.get(token.type, "operator")
        if tag == "name" and keyword.iskeyword(token.string):
            tag = "keyword"
        elif tag == "name" and following.string == "(":
            tag = "function"
        elif tag == "name" and line["words"][-1:] == ["."]:
            tag = "attribute"
        if token.type != tokenize.COMMENT and token.start[0] == token.end[0]:
            line["words"].append(token.string)
            line["tags"].append(tag)
        if following.start[0] > token.end[0]:
            yield line
            line = {"words": [], "tags": []}


def train(model: Tagger, batches: Iterable[seqpack.PackedTensors], steps: int) -> None:
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, batch in enumerate(islice(chain.from_iterable(repeat(batches)), steps), start=1):
        moved = batch.to(device)
        loss = nn.functional.cross_entropy(model(moved.sequences), moved.labels)  # ignores -100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            click.echo(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def predict(model: Tagger, batches: Iterable[seqpack.PackedTensors]) -> Iterator[Tensor]:
    """Yield for each batch which labeled tokens are predicted right."""
    for batch in batches:
        moved = batch.to(next(model.parameters()).device)
        is_right = model(moved.sequences).argmax(dim=1) == moved.labels
        yield is_right[moved.labels >= 0].cpu()


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--steps", default=200, show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(folders, steps, device) -> None:
    """Train on the Python files in FOLDERS, and print the accuracy on lines that are held out."""
    torch.manual_seed(0)
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not files:
        raise click.UsageError(f"no Python files in {', '.join(map(str, folders))}")
    with TemporaryDirectory() as folder:
        work = Path(folder)
        lines = chain.from_iterable(map(iter_lines, files))
        (work / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
        words = {"text_field": "words", "keep": ["tags:tags"]}
        manifest, _ = seqpack.tokenize(work / "lines.jsonl", work / "tokens", **words)
        rows = {"max_tokens": 1024, "shuffle": True, "window": 1024}
        seqpack.pack(work / "tokens", work / "shards", split="train=0.8,test=0.2", **rows)
        dataset, held_out = (
            seqpack.ShardDataset(work / "shards" / name, labels="tags")
            for name in ("train", "test")
        )
        num_tags = len(dataset.class_names("tags"))
        model = Tagger(manifest["vocab_size"], num_tags).to(device)
        train(model, DataLoader(dataset, batch_size=None, shuffle=True), steps)
        right = torch.cat([*predict(model, held_out)])
    click.echo(f"held out: {right.float().mean():.1%} of {len(right):,} words, {num_tags} tags")


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
