"""Tokenize with several tokenizers in ways that use all of the library, and say what was made.

Run with a folder of tokenizer.json files, by whatever version of `tokenizers` is installed; the
last line of stdout is one JSON document. It must not depend on the version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from blake3 import blake3

from seqpack_cli.errors import SeqpackError
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.decode import open_decoder, spell_ids
from seqpack_cli.tokens.options import TargetOptions, TokenizeOptions
from seqpack_cli.tokens.store import open_store
from seqpack_cli.tokens.tokenize_run import tokenize
from seqpack_cli.tokens.tokenizer import list_special_tokens
from seqpack_cli.tokens.train_tokenizer import train_tokenizer

HERE = Executor(num_workers=1)
TEMPLATE = (
    "{% for message in messages %}<s>{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content }}</s>{% endgeneration %}{% else %}{{ message.content }}</s>{% endif %}"
    "{% endfor %}"
)
# Of words that most kinds know, so that their offsets follow from what the tokens spell.
PLAIN = ["the dog and the cat", "a man on a hill said so", "it was old", "  two  spaces "]


def write_corpus(folder: Path, texts: list[str]) -> None:
    """Write the input of every job."""
    lines = [json.dumps({"text": text}) for text in [*texts, *PLAIN, "", " <s> [CLS] oat biscuits"]]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    records = [
        {
            **{"text": text.split(), "tags": [word[0] for word in text.split()]},
            **{"prompt": text, "completion": f" {other}"},
            "messages": [
                {"role": "user", "content": f"{text} <s>"},
                {"role": "assistant", "content": other},
            ],
        }
        for text, other in zip(PLAIN, PLAIN[::-1], strict=True)
    ]
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    (folder / "chat.jinja").write_text(TEMPLATE)
    (folder / "newer.jsonl").write_text('{"text": "old"}\n{"text": "a \\u2e43"}\n')


def run_job(source: Path, store: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Tokenize and return the checksum of each file of the store, or the error."""
    try:
        tokenize(source, store, TokenizeOptions(**options), executor=HERE)
    except SeqpackError as error:
        return {"error": error.message.replace(f"{source.parent}/", ""), "hint": error.hint}
    files = [path for path in sorted(store.iterdir()) if path.name != "run.json"]
    made: dict[str, Any] = {path.name: blake3(path.read_bytes()).hexdigest() for path in files}
    opened = open_store(store)
    ids = [opened[index] for index in range(min(len(opened), 40))]
    tokenizer_json = opened.read_tokenizer_json()
    made["texts"] = open_decoder(tokenizer_json)(ids)
    known = sorted({int(id_) for row in ids for id_ in row})
    made["tokens"] = [[it.token, it.text] for it in spell_ids(tokenizer_json, known)]
    made["special"] = sorted(list_special_tokens(tokenizer_json).items())
    record = json.loads((store / "run.json").read_bytes())
    made["run"] = [record["encoder"], record["versions"]["tokenizers"]]
    return made


def run_jobs(folder: Path, jobs: list[list[str]]) -> dict[str, Any]:
    """Return what each job made, by its tokenizer and what is done with it."""
    out = folder / f"made by {_find_version()}"
    out.mkdir()
    with_targets = TargetOptions(prompt_field="prompt", completion_field="completion")
    chat = TargetOptions(messages_field="messages", chat_template=folder / "chat.jinja")
    slow: dict[str, Any] = {"encoder": "tokenizers"}
    known: dict[str, tuple[str, dict[str, Any]]] = {
        "texts": ("texts.jsonl", slow),
        "special": ("texts.jsonl", {**slow, "allow_special_tokens": True}),
        "auto": ("texts.jsonl", {}),
        "tags": ("records.jsonl", {**slow, "keep": ["tags:tags"]}),
        "prompts": ("records.jsonl", {**slow, "targets": with_targets, "eos": "</s>"}),
        "chat": ("records.jsonl", {**slow, "targets": chat}),
        "newer": ("newer.jsonl", slow),
    }
    found: dict[str, Any] = {}
    for tokenizer, job in jobs:
        source, options = known[job]
        options = {"tokenizer": folder / f"{tokenizer}.json", **options}
        store = out / f"{tokenizer} {job}"
        found[f"{tokenizer} {job}"] = run_job(folder / source, store, options)
    try:
        train_tokenizer(folder / "texts.jsonl", out / "trained.json")
    except SeqpackError as error:
        found["train"] = {"error": error.message, "hint": error.hint}
    return found


def _find_version() -> str:
    import tokenizers

    return tokenizers.__version__


if __name__ == "__main__":
    print(json.dumps(run_jobs(Path(sys.argv[1]), json.loads(sys.argv[2]))))
