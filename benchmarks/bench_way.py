"""How fast are tokenize, pack and loading, compared with the libraries that they use?

    python benchmarks/bench_way.py INPUT... --tokenizer tokenizer.json [--runs 3]

Tokenize is compared with a bare loop of `tokenizers.encode_batch_fast` over the same texts in
memory, with one thread; pack with torch's `pack_sequence` and `pad_sequence` over the same rows in
memory; loading with the same two functions, called as in a DataLoader's collate function, with
int64 ids. Results are compared in every run. Not measured: several workers, cold disks (the files
are in the page cache), GPUs.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import tokenizers
import torch
from machine import describe_machine
from torch.nn.utils.rnn import pack_sequence, pad_sequence

from seqpack_cli import (
    Executor,
    PackOptions,
    ShardDataset,
    TokenizeOptions,
    open_shards,
    open_store,
    pack,
    tokenize,
)
from seqpack_cli.corpus.fields import FieldText
from seqpack_cli.corpus.find_files import find_sources
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import iter_records
from seqpack_cli.corpus.sources import SourceRange
from seqpack_cli.shards.unpack import iter_unpacked

TEXTS_PER_CALL = 1000
HERE = Executor(num_workers=1)


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("--tokenizer", required=True, type=click.Path(exists=True))
@click.option("--runs", default=3)
def main(inputs: tuple[str, ...], tokenizer: str, runs: int) -> None:
    """Print a table of medians, and one JSON document as the last line."""
    torch.set_num_threads(1)
    texts = read_texts(inputs)
    num_bytes = sum(len(text.encode()) for text in texts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = measure(inputs, tokenizer, texts, folder, runs)
        num_tokens = open_store(folder / "tokens").num_tokens
    print(f"{num_bytes / 1e6:.1f} MB of text, {num_tokens:,} tokens, median (spread) of {runs}")
    figures: dict[str, Any] = {}
    for step, seconds in times.items():
        median = statistics.median(seconds)
        spread = (max(seconds) - min(seconds)) / median
        figures[step] = {
            "seconds": round(median, 4),
            "spread": round(spread, 3),
            "megabytes_per_second": round(num_bytes / 1e6 / median, 2),
            "million_tokens_per_second": round(num_tokens / 1e6 / median, 2),
        }
        print(
            f"  {step:<28} {median:8.3f} s ({spread:4.0%})  "
            f"{figures[step]['megabytes_per_second']:8.2f} MB/s  "
            f"{figures[step]['million_tokens_per_second']:8.2f} M tokens/s"
        )
    print(json.dumps({"figures": figures, **describe_machine("torch", "tokenizers"), "runs": runs}))


def measure(
    inputs: tuple[str, ...], tokenizer: str, texts: list[str], folder: Path, runs: int
) -> dict[str, list[float]]:
    """Time every step `runs` times, seqpack and the rival in turn, after one warm-up."""
    times: dict[str, list[float]] = {}

    def timed(step: str, function: Callable[[], Any], run: int) -> Any:
        started = time.perf_counter()
        result = function()
        if run > 0:  # run 0 warms up
            times.setdefault(step, []).append(time.perf_counter() - started)
        return result

    library = tokenizers.Tokenizer.from_file(tokenizer)
    library.encode_special_tokens = True
    tokens = folder / "tokens"
    for run in range(runs + 1):
        options = TokenizeOptions(tokenizer=tokenizer)
        timed(
            "tokenize",
            lambda: tokenize(inputs, tokens, options, executor=HERE, overwrite=True),  # noqa: B023
            run,
        )
        ids = timed("tokenizers alone", lambda: encode_all(library, texts), run)
        store = open_store(tokens)
        assert [row for row in ids if row] == [row.tolist() for row in store]
        for layout in ("packed", "padded"):
            shards, rival = folder / layout, pack_rows if layout == "packed" else pad_rows
            packing = PackOptions(layout=layout)
            timed(
                f"pack --layout {layout}",
                lambda: pack(tokens, shards, packing, executor=HERE, overwrite=True),  # noqa: B023
                run,
            )
            dataset = ShardDataset(shards)
            ours = timed(f"load {layout}", lambda: [dataset[i] for i in range(len(dataset))], run)  # noqa: B023
            rows = [
                [torch.from_numpy(row.astype(np.int64)) for row in batch.rows()]
                for batch in open_shards(shards)
            ]
            theirs = timed(f"torch collate {layout}", lambda: [rival(batch) for batch in rows], run)  # noqa: B023
            for mine, other in zip(ours, theirs, strict=True):
                ids = mine.sequences.data if layout == "packed" else mine.ids
                assert torch.equal(ids, other[0])
        timed("unpack", lambda: list(iter_unpacked(open_shards(folder / "packed"), {})), run)
    return times


def read_texts(inputs: tuple[str, ...]) -> list[str]:
    """Read the same texts that tokenize reads."""
    sources, _ = find_sources(inputs)
    return [
        text
        for index, source in enumerate(sources)
        for block in iter_records(
            SourceRange(index, source, 0, source.num_bytes),
            [FieldText("text")],
            DocumentOptions(),
            None,
        )
        for text in block.lists[0]
    ]


def encode_all(library: tokenizers.Tokenizer, texts: list[str]) -> list[list[int]]:
    """Encode with the library alone."""
    found: list[list[int]] = []
    for start in range(0, len(texts), TEXTS_PER_CALL):
        batch = texts[start : start + TEXTS_PER_CALL]
        found += [encoding.ids for encoding in library.encode_batch_fast(batch)]
    return found


def pack_rows(rows: list[torch.Tensor]) -> Any:
    """Collate as is usual for LSTMs; the rows are sorted, so torch need not sort."""
    return pack_sequence(rows, enforce_sorted=True)


def pad_rows(rows: list[torch.Tensor]) -> tuple[torch.Tensor]:
    """Collate into a padded rectangle, as is usual in torch."""
    return (pad_sequence(rows, batch_first=True),)


if __name__ == "__main__":
    import os

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
