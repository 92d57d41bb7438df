"""Stores with targets for the tests of verify: prompts and completions, or pieces that overlap."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from seqpack_cli.batching.options import PackOptions
from seqpack_cli.runs.workers import Executor
from seqpack_cli.shards.pack import pack
from seqpack_cli.tokens.options import TargetOptions, TokenizeOptions
from seqpack_cli.tokens.tokenize_run import tokenize

ONE = Executor(num_workers=1)
PROMPTS = TargetOptions(prompt_field="prompt", completion_field="completion")
LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3},
    "padded": {"layout": "padded", "batch_size": 4, "last_batch": "pad"},
    "left": {"layout": "padded", "batch_size": 3, "padding_side": "left", "pad_to_multiple": 4},
    "varlen": {"layout": "varlen", "max_tokens": 14},
    "pieces": {"layout": "varlen", "max_tokens": 5},
}


def make_target_store(folder: Path, count: int = 30, name: str = "store", **options: Any) -> Path:
    """Tokenize prompts and completions of random letters, some of them empty, into folder/NAME."""
    draws = random.Random(count)

    def draw(most: int) -> str:
        return "".join(draws.choices("abcdefgh", k=draws.randint(0, most)))

    records = [{"prompt": draw(4), "completion": draw(7)} for _ in range(count)]
    corpus = folder / f"{name}.jsonl"
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))
    options.setdefault("targets", PROMPTS)
    options.setdefault("eos", "<eos>")
    tokenize([str(corpus)], folder / name, TokenizeOptions(**options), executor=ONE)
    return folder / name


def make_target_shards(folder: Path, layout: str = "packed", **options: Any) -> Path:
    """Pack a store with targets into folder/shards."""
    store = make_target_store(folder, **options)
    pack(store, folder / "shards", PackOptions(**LAYOUTS[layout]), executor=ONE)
    return folder / "shards"
