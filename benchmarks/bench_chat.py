"""What do targets cost in tokenize: conversations and prompts beside plain text of the same size?

    python benchmarks/bench_chat.py documents.jsonl --tokenizer tokenizer.json [--rounds 5]

The texts of the input are cut into conversations, whose turns have about 500 characters. Each is
written three times: as messages, as a prompt and its completion, and as the plain text that the
chat template renders, so that all three give the same ids. Each round tokenizes every one in turn;
the speed is that with targets divided by that of the plain text, in the median of the rounds.

`blocks` has a template with {% generation %} blocks, `prefixes` the same without, of which only the
last turn is a target or all are. Not measured: cold disks.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from machine import describe_machine
from tokenizers import AddedToken, Tokenizer

from seqpack_cli import Executor, TargetOptions, TokenizeOptions, tokenize

TURN = 500  # characters
TURNS = 6  # of a conversation
SPECIAL = ("<|im_start|>", "<|im_end|>")
BLOCKS = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' -%}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}

{% else %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}"""
PREFIXES = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@click.command()
@click.argument("documents", type=click.Path(exists=True, path_type=Path))
@click.option("--tokenizer", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--num-workers", default=None, type=int)
@click.option("--encoder", default="auto", show_default=True)
def main(
    documents: Path, tokenizer: Path, rounds: int, num_workers: int | None, encoder: str
) -> None:
    """Print a table of medians, and one JSON document as the last line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add_special_tokens(tokenizer, folder / "tokenizer.json")
        (folder / "blocks.jinja").write_text(BLOCKS)
        (folder / "prefixes.jinja").write_text(PREFIXES)
        num_conversations = write_records(documents, folder)
        executor = Executor(num_workers=num_workers)
        times = [measure(folder, executor, encoder) for _ in range(rounds + 1)]
        num_bytes = (folder / "plain.jsonl").stat().st_size
    print(f"{num_conversations:,} conversations, {num_bytes / 1e6:.0f} MB, {rounds} rounds")
    figures: dict[str, Any] = {}
    for case in times[0]:
        speeds = [found["plain"] / found[case] for found in times[1:]]
        figures[case] = {
            "seconds": round(statistics.median(found[case] for found in times[1:]), 3),
            "speed": round(statistics.median(speeds), 3),
            "from": round(min(speeds), 3),
            "to": round(max(speeds), 3),
        }
        found = figures[case]
        print(
            f"  {case:<14} {found['seconds']:8.3f} s  "
            f"speed {found['speed']:.2f} ({found['from']:.2f} to {found['to']:.2f})"
        )
    machine = describe_machine("numpy", "tokenizers", "jinja2")
    print(json.dumps({"figures": figures, **machine, "rounds": rounds, "encoder": encoder}))


def add_special_tokens(tokenizer: Path, path: Path) -> None:
    """Add the special tokens of the templates to a tokenizer."""
    found = Tokenizer.from_file(str(tokenizer))
    found.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    found.save(str(path))


def write_records(documents: Path, folder: Path) -> int:
    """Write conversations in each form; return their number."""
    num_conversations = 0
    with (
        (folder / "messages.jsonl").open("w") as messages,
        (folder / "prompts.jsonl").open("w") as prompts,
        (folder / "plain.jsonl").open("w") as plain,
    ):
        for turns in iter_conversations(documents):
            rendered = [
                f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns
            ]
            prompt, completion = "".join(rendered[:-1]), rendered[-1]
            for file, record in (
                (messages, {"messages": turns}),
                (prompts, {"prompt": prompt, "completion": completion}),
                (plain, {"text": prompt + completion}),
            ):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            num_conversations += 1
    return num_conversations


def iter_conversations(documents: Path) -> Iterator[list[dict[str, str]]]:
    """Yield the turns of conversations."""
    with documents.open() as source:
        for line in source:
            text = json.loads(line)["text"]
            if "<|" in text:  # a special token in messages stays text, but not in plain text
                continue
            for first in range(0, len(text), TURN * TURNS):
                pieces = [text[at : at + TURN] for at in range(first, first + TURN * TURNS, TURN)]
                roles = ("user", "assistant") * TURNS
                yield [
                    {"role": role, "content": piece}
                    for role, piece in zip(roles, pieces, strict=False)
                    if piece
                ]


def measure(folder: Path, executor: Executor, encoder: str) -> dict[str, float]:
    """Time every case once; all must give the same number of tokens."""
    cases: dict[str, tuple[str, TargetOptions]] = {
        "plain": ("plain", TargetOptions()),
        "prompts": ("prompts", TargetOptions("prompt", "completion")),
    }
    for case, template, turns in (
        ("blocks", "blocks", "all"),
        ("prefixes", "prefixes", "all"),
        ("last prefix", "prefixes", "last"),
    ):
        chat = folder / f"{template}.jinja"
        options = TargetOptions(messages_field="messages", chat_template=chat, target_turns=turns)
        cases[case] = "messages", options
    times, num_tokens = {}, set()
    for case, (records, targets) in cases.items():
        options = TokenizeOptions(
            tokenizer=folder / "tokenizer.json",
            targets=targets,
            encoder=encoder,
            allow_special_tokens=records != "messages",
        )
        started = time.perf_counter()
        manifest, _ = tokenize(
            folder / f"{records}.jsonl",
            folder / "store",
            options,
            executor=executor,
            overwrite=True,
        )
        times[case] = time.perf_counter() - started
        num_tokens.add(manifest["ledger"]["num_tokens"])
    assert len(num_tokens) == 1, num_tokens
    return times


if __name__ == "__main__":
    main()
