"""Make token stores of random ids with log-normal lengths for benchmarks, at disk speed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.corpus.sources import Source
from seqpack_cli.files.places import at
from seqpack_cli.runs.run_folder import RunOutput, hold_folder
from seqpack_cli.tokens.manifest import describe_plan, make_manifest
from seqpack_cli.tokens.options import TokenizeOptions
from seqpack_cli.tokens.part_files import (
    choose_dtype,
    columns_name,
    write_index,
    write_part_columns,
)
from seqpack_cli.tokens.tokenizer import Vocabulary, describe_vocabulary

SPREAD = 1.0  # sigma of the log-normal lengths: one in a thousand is above 1,600
LONGEST = 8_192
TOKENS_PER_PART = 1 << 25


@contextmanager
def keep_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the folder, or a temporary one."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


def make_store(folder: Path, num_tokens: int, vocab_size: int, mean_length: int) -> None:
    """Write a token store of random ids, or find it complete."""
    tokenizer_json = make_tokenizer_json(vocab_size)
    vocabulary = describe_vocabulary(tokenizer_json)
    source = Source(f"{num_tokens} tokens, {mean_length} a sequence", "txt", "line", num_tokens)
    options = {**TokenizeOptions().record(), "chat": {}, "keep": []}
    plan = describe_plan("tokenize", vocabulary, options, [source])
    with hold_folder(RunOutput(folder)) as run:
        run.begin(plan)
        if run.manifest is not None:
            return
        with at(folder / "tokenizer.json").publish() as file:
            file.write(tokenizer_json)
        receipts = [
            write_part(folder, number, lengths, vocabulary)
            for number, lengths in enumerate(draw_lengths(num_tokens, mean_length))
        ]
        files = [file for receipt in receipts for file in receipt["files"]]
        run.finish(make_manifest(plan, [], receipts), files)


def make_tokenizer_json(vocab_size: int) -> bytes:
    """Return a tokenizer whose words are numbers; nothing is ever encoded with it."""
    words = {"<pad>": 0, **{str(number): number for number in range(1, vocab_size)}}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "1"}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model}).encode()


def draw_lengths(num_tokens: int, mean_length: int) -> Iterator[np.ndarray]:
    """Yield the lengths of each part, about num_tokens in all."""
    generator = np.random.default_rng(0)
    middle = np.log(mean_length) - SPREAD**2 / 2
    for start in range(0, num_tokens, TOKENS_PER_PART):
        num_sequences = max(1, min(TOKENS_PER_PART, num_tokens - start) // mean_length)
        drawn = generator.lognormal(middle, SPREAD, num_sequences)
        yield np.clip(drawn, 1, LONGEST).astype(np.int64)


def write_part(
    folder: Path, number: int, lengths: np.ndarray, vocabulary: Vocabulary
) -> dict[str, Any]:
    """Write one part of random ids, one sequence per document; return its receipt."""
    generator = np.random.default_rng([0, number])
    dtype, name = choose_dtype(vocabulary.max_id), f"part-{number:05d}"
    ids = generator.integers(1, vocabulary.max_id + 1, int(lengths.sum()), np.dtype(dtype).type)
    files = []
    with at(folder / f"{name}.bin").publish() as file:
        file.write(ids)
        files.append({"name": f"{name}.bin", **file.describe()})
    with at(folder / f"{name}.idx").publish() as file:
        write_index(file, lengths=lengths, num_sequences=np.ones_like(lengths), dtype=dtype)
        files.append({"name": f"{name}.idx", **file.describe()})
    hashes = np.random.PCG64([1, number]).random_raw(len(lengths))
    files.append(write_part_columns(folder / columns_name(name), [hashes], {}))
    counts = dict.fromkeys(("num_documents", "num_sequences"), len(lengths))
    names = ("num_encoded_tokens", "num_tokens", "num_target_tokens")
    counts |= dict.fromkeys(names, len(ids))
    source_range = {
        "source": 0,
        "start": 0,
        "end": len(ids),
        "num_documents": len(lengths),
        "blake3": blake3(b"").hexdigest(),
    }
    return {"ledger": counts, "ranges": [source_range], "files": files, "rejects": []}
