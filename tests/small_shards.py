"""Small stores and shards of random texts, an id a byte, made with the functions of the package."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqpack_cli import Executor, PackOptions, pack, tokenize

LENGTHS = (3, 9, 5, 1, 5, 12, 2)


def make_shards(
    folder: Path, lengths: Sequence[int] = LENGTHS, *, seed: int = 0, **options: Any
) -> Path:
    """Make folder/store of random texts of these lengths, and pack it into folder/shards."""
    letters, here = random.Random(seed), Executor(num_workers=1)
    texts = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=n)) for n in lengths]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.txt").write_text("".join(f"{text}\n" for text in texts))
    tokenize([folder / "corpus.txt"], folder / "store", executor=here)
    if options.get("layout") not in ("varlen", "streams"):
        options.setdefault("batch_size", 3)
    pack(folder / "store", folder / "shards", PackOptions(**options), executor=here)
    return folder / "shards"
