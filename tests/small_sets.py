"""Small stores, and shards of all layouts packed from them, for tests that damage them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from seqpack_cli import (
    Executor,
    ImportOptions,
    PackOptions,
    TokenizeOptions,
    import_store,
    pack,
    tokenize,
)

HERE = Executor(num_workers=1)
# Short and long ones, most lengths several times.
LENGTHS = [1 + number * number % 13 for number in range(30)] + [30, 1, 2, 25, 25]
PADDED = {"layout": "padded"}
VARLEN = {"layout": "varlen", "max_tokens": 32}
STREAMS = {"layout": "streams", "batch_size": 3, "max_tokens": 8}
SPLIT = "train=0.5,validation=0.25,test=0.25"
# The stores of each set, those of the decoder's side, and the options of pack.
SETS: dict[str, tuple[list[str], list[str], dict[str, Any]]] = {
    "packed": (["plain"], [], {"batch_size": 4, "drop_longer": 29}),
    "windows": (["plain"], [], {"batch_size": 4, "window": 8, "drop_shorter": 2, "shuffle": True}),
    "tokens": (["plain"], [], {"max_tokens": 40, "order": "none", "last_batch": "drop"}),
    "passes": (["plain"], [], {"batch_size": 8, "passes": "1=2.5", "shuffle": True, "seed": 4}),
    "two": (["plain", "more"], [], {"batch_size": 8, "store_column": "from"}),
    "padded": (["plain"], [], {**PADDED, "batch_size": 6, "drop_longer": 29}),
    "left": (["plain"], [], {**PADDED, "max_tokens": 60, "padding_side": "left", "pad_id": 9}),
    "filler": (
        ["columns"],
        [],
        {**PADDED, "batch_size": 4, "last_batch": "pad", "buckets": (8, 20, 40), "pad_id": 3},
    ),
    "varlen": (["plain"], [], {**VARLEN, "seed": 2}),
    "rows": (["columns"], [], {**VARLEN, "max_tokens": 12, "batch_size": 2, "pad_id": 3}),
    "aligned": (["plain"], [], {**VARLEN, "align_sequences": 4, "fill": "sequential"}),
    "chunk": (["plain"], [], {**VARLEN, "max_tokens": 11, "fill": "chunk", "batch_size": 2}),
    "streams": (["plain"], [], STREAMS),
    "rounds": (["ids"], [], {**STREAMS, "passes": "1=1.5", "pad_id": 3}),
    "pairs": (["plain"], ["german"], {"batch_size": 5, "shard_bytes": 900}),
    "padded pairs": (
        ["plain"],
        ["german"],
        {**PADDED, "max_tokens": 90, "buckets": [(20, 24), (90, 90)], "shard_bytes": 900},
    ),
    "columns": (["columns"], [], {"batch_size": 4, "drop_shorter": 2}),
    "splits": (["pieces"], [], {"split": SPLIT, "batch_size": 4, "drop_longer": 8}),
    "split pairs": (["plain"], ["german"], {"split": SPLIT, "batch_size": 4}),
}
MADE = ("columns", "ids")  # stores with columns
SHARD_BYTES = (788, 1700)
SPLITS = ("splits", "split pairs")


def draw_lines(lengths: list[int], seed: int) -> bytes:
    """Return a line of each length."""
    drawn = random.Random(seed)
    return "".join("".join(drawn.choices("abcd", k=n)) + "\n" for n in lengths).encode()


def draw_records(lengths: list[int]) -> bytes:
    """Return JSON lines of words with tags, and a value of each other kind of column."""
    drawn, lines = random.Random(5), []
    for length in lengths:
        words = ["".join(drawn.choices("abcd", k=drawn.randint(1, 3))) for _ in range(length // 3)]
        record = {
            "text": words,
            "tags": [drawn.choice(["N", "V"]) for _ in words],
            "title": drawn.choice(["é", "", "ab", "wörd"]),
            "label": drawn.choice(["x", "y", "z"]),
            "score": drawn.choice([0.5, -1.25, 1e300]),
            "count": drawn.randrange(-3, 2**40),
        }
        lines.append(json.dumps(record, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def draw_ids(lengths: list[int]) -> bytes:
    """Return JSON lines of ids, some of which are no targets."""
    drawn, lines = random.Random(6), []
    for length in lengths:
        ids = [drawn.randrange(10, 40) for _ in range(length)]
        labels = [-100 if drawn.random() < 0.3 else id_ for id_ in ids[:-1]] + ids[-1:]
        lines.append(json.dumps({"input_ids": ids, "labels": labels}))
    return ("\n".join(lines) + "\n").encode()


def make_stores(folder: Path) -> None:
    """Make all stores in a folder."""
    files = {
        "plain.txt": draw_lines(LENGTHS, 1),
        "more.txt": draw_lines(LENGTHS[:12], 2),
        "german.txt": draw_lines([length % 5 for length in LENGTHS], 3),
        "columns.jsonl": draw_records(LENGTHS),
        "ids.jsonl": draw_ids(LENGTHS[4:]),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    for name in ("plain", "more", "german"):
        tokenize(folder / f"{name}.txt", folder / name, TokenizeOptions(), executor=HERE)
    cut = TokenizeOptions(max_length=7, overlap=2, part_bytes=150)
    tokenize(folder / "plain.txt", folder / "pieces", cut, executor=HERE)
    kept = ("title:text", "label:class", "score:float", "count:int", "tags:tags")
    given = TokenizeOptions(keep=kept, max_length=12, overlap=2)
    tokenize(folder / "columns.jsonl", folder / "columns", given, executor=HERE)
    import_store(folder / "ids.jsonl", folder / "ids", ImportOptions(vocab_size=40), executor=HERE)


def make_set(folder: Path, name: str, output: Path, **more: Any) -> Path:
    """Pack a set from the stores of a folder."""
    stores, decoder, options = SETS[name]
    given = {"shard_bytes": SHARD_BYTES[len(decoder) + (stores[0] in MADE)], **options, **more}
    places = [[folder / store for store in side] for side in (stores, decoder)]
    pack(places[0], output, PackOptions(**given), decoder=places[1] or None, executor=HERE)
    return output
