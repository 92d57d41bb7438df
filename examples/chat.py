"""Train a small transformer on conversations: only what the assistant writes is learned.

    python examples/chat.py examples/conversations.jsonl --steps 100

The chat template turns each conversation into a text, and marks what the assistant writes in it:
the targets. With labels="next" all other labels are -100, which cross_entropy ignores. So the loss
of the prompts rises: the model expects answers there. In the end it repeats some last answers.
"""

from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import seqpack_cli as seqpack

MAX_LENGTH = 512  # tokens per sequence; longer conversations are split
MARKS = ("<|im_start|>", "<|im_end|>")  # special tokens of the template; the last ends a turn


class Transformer(nn.Module):
    def __init__(self, vocab_size: int, hidden_size: int = 128, num_layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        self.positions = nn.Embedding(MAX_LENGTH, hidden_size)
        layer = nn.TransformerEncoderLayer(hidden_size, 4, 4 * hidden_size, 0.0, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, batch: seqpack.VarlenTensors) -> torch.Tensor:
        sequences = torch.repeat_interleave(batch.cu_seqlens.diff())  # 0 0 0 1 1: lengths 3 and 2
        mask = (sequences[:, None] == sequences).tril()  # to itself and earlier ones of its own
        hidden = self.tokens(batch.ids) + self.positions(batch.position_ids)
        return self.head(self.layers(hidden, mask=~mask))  # (S, vocabulary)


def make_shards(inputs: tuple[str, ...], folder: Path) -> None:
    """Make a tokenizer, tokens and shards of the conversations in JSON lines."""
    tokenizer, tokens = folder / "tokenizer.json", folder / "tokens"
    # of the lines of the files as text: messages with the JSON around them
    words = {"vocab_size": 1000, "special_tokens": MARKS, "file_format": "text"}
    seqpack.train_tokenizer(inputs, tokenizer, **words)
    chat = {"messages_field": "messages", "tools_field": "tools", "max_length": MAX_LENGTH}
    template = Path(__file__).with_name("chat.jinja")
    seqpack.tokenize(inputs, tokens, tokenizer=tokenizer, chat_template=template, **chat)
    seqpack.pack(tokens, folder / "shards", layout="varlen", max_tokens=512)


def compute_loss(model: nn.Module, batch: seqpack.VarlenTensors) -> torch.Tensor:
    """Return the mean loss of the targets; 0, and never NaN, if there are none."""
    total = cross_entropy(model(batch), batch.labels, reduction="sum")  # ignores -100
    return total / max(int((batch.labels != -100).sum()), 1)


@torch.no_grad()
def measure(model: nn.Module, dataset: seqpack.ShardDataset, device: str) -> str:
    """Return the mean loss of the tokens that are targets, and of all others: the prompts."""
    prompts, targets = [], []
    for batch in (batch.to(device) for batch in dataset):
        next_ids = batch.ids.roll(-1)
        next_ids[batch.cu_seqlens[1:] - 1] = -100  # the last token of a sequence has no next one
        losses = cross_entropy(model(batch), next_ids, reduction="none")
        targets.append(losses[batch.labels != -100])
        prompts.append(losses[(batch.labels == -100) & (next_ids != -100)])
    means = [torch.cat(losses).mean().item() for losses in (prompts, targets)]
    return "loss of prompts {:.2f}, of targets {:.2f}".format(*means)


@torch.no_grad()
def generate(model: nn.Module, prompt: torch.Tensor, end: int, device: str) -> list[int]:
    """Return a prompt and its answer: the likeliest token, again and again, until the turn ends."""
    ids = prompt
    while len(ids) < MAX_LENGTH and (ids is prompt or ids[-1] != end):
        batch = seqpack.collate_varlen([seqpack.TokenSequence(ids, 0)]).to(device)
        ids = torch.cat([ids, model(batch)[-1:].argmax(dim=1).cpu()])
    return ids.tolist()


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--steps", default=100, show_default=True)
@click.option("--answers", default=2, show_default=True, help="Conversations to print.")
@click.option("--device", default="cpu", show_default=True)
def main(inputs, steps, answers, device) -> None:
    """Train on the conversations of INPUT, then answer again in the first ones."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        make_shards(inputs, Path(folder))
        tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        dataset = seqpack.ShardDataset(f"{folder}/shards", labels="next")
        loader = DataLoader(dataset, batch_size=None, shuffle=True)
        model = Transformer(dataset.vocab_size).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        click.echo(f"before: {measure(model, dataset, device)}")
        for batch in islice(chain.from_iterable(repeat(loader)), steps):
            optimizer.zero_grad()
            compute_loss(model, batch.to(device)).backward()
            optimizer.step()
        click.echo(f"after: {measure(model, dataset, device)}")
        rows = seqpack.StoreDataset(f"{folder}/tokens")
        begins = ((row, row.columns["targets"].diff() == 1) for row in rows)  # at the next token
        for row, is_next in islice((pair for pair in begins if pair[1].any()), answers):
            prompt = row.ids[: is_next.nonzero()[-1] + 1]  # all before the last answer
            ids = generate(model, prompt, tokenizer.token_to_id(MARKS[1]), device)
            click.echo("\n" + tokenizer.decode(ids, skip_special_tokens=False))


if __name__ == "__main__":
    try:
        main()
    except seqpack.SeqpackError as error:  # its hint names options of seqpack, not of this file
        raise SystemExit(f"Error: {error.message}") from None
