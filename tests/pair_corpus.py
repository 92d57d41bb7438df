"""A small corpus of pairs as two token stores, packed as shards of pairs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqpack_cli import DocumentOptions, Executor, PackOptions, TokenizeOptions, pack, tokenize

HERE = Executor(num_workers=1)
LANGUAGES = ("de", "en")


def draw_records(num_pairs: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draw pairs of short texts of letters, a language and a number for each."""
    draw = random.Random(seed)
    return [
        {
            **{
                side: "".join(draw.choices("abcdefg", k=draw.randint(2, 9)))
                for side in ("read", "written")
            },
            "lang": draw.choice(LANGUAGES),
            "number": number,
        }
        for number in range(num_pairs)
    ]


def make_pair_stores(
    folder: Path, records: Sequence[dict[str, Any]], **of_decoder: Any
) -> tuple[Path, Path]:
    """Tokenize both sides of records as bytes; each side keeps the language and the number."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "pairs.jsonl").write_text(lines)
    for side, more in (("read", {}), ("written", of_decoder)):
        documents = DocumentOptions(text_field=side)
        keep = ["lang:class", "number:int"]
        options = TokenizeOptions(**{"documents": documents, "keep": keep, **more})
        tokenize([folder / "pairs.jsonl"], folder / side, options, executor=HERE)
    return folder / "read", folder / "written"


def make_pair_shards(
    folder: Path,
    records: Sequence[dict[str, Any]] | int = 23,
    *,
    decoder: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Pack records, or so many drawn ones, into folder/shards; 4 to a batch by default.

    Args:
        decoder: options of tokenize for that side.
    """
    drawn = draw_records(records) if isinstance(records, int) else records
    read, written = make_pair_stores(folder, drawn, **(decoder or {}))
    if "max_tokens" not in options:
        options.setdefault("batch_size", 4)
    pack(read, folder / "shards", PackOptions(**options), decoder=written, executor=HERE)
    return folder / "shards"
