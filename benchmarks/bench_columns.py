"""What do columns cost in tokenize, pack and loading?

    python benchmarks/bench_columns.py documents.jsonl --tokenizer tokenizer.json [--rounds 5]

The records of the input get three fields: `label` (one of 20 strings), `number` (an integer) and
`id` (12 characters). The same file is tokenized with and without `--keep` of the three, both
stores are packed, and the shards are read as a DataLoader's worker reads them: with all columns,
with `label` alone, and with none. Each round does all of it in turn; the speed is that with columns
divided by that without, in the median of the rounds. Not measured: cold disks, GPUs.
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
from machine import describe_machine

from seqpack_cli import Executor, PackOptions, ShardDataset, TokenizeOptions, pack, tokenize

KEEP = ("label:class", "number:int", "id:text")
LABELS = 20
MAX_LENGTH = 512


@click.command()
@click.argument("documents", type=click.Path(exists=True, path_type=Path))
@click.option("--tokenizer", default="bytes", show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--num-workers", default=None, type=int)
@click.option("--layout", default="packed", show_default=True)
def main(
    documents: Path, tokenizer: str, rounds: int, num_workers: int | None, layout: str
) -> None:
    """Print a table of medians, and one JSON document as the last line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = folder / "records.jsonl"
        num_records = write_records(documents, records)
        executor = Executor(num_workers=num_workers)
        times = [measure(records, tokenizer, executor, layout, folder) for _ in range(rounds + 1)]
        num_bytes = records.stat().st_size
    print(f"{num_records:,} records, {num_bytes / 1e6:.0f} MB, median of {rounds} rounds")
    figures: dict[str, Any] = {}
    for step, bar in (("tokenize", 0.85), ("pack", 0.9), ("load all", None), ("load label", 0.91)):
        base = step.split()[0]
        pairs = [(found[f"{base} without"], found[step]) for found in times[1:]]
        speeds = [without / columns for without, columns in pairs]
        figures[step] = {
            "seconds_without": round(statistics.median(pair[0] for pair in pairs), 4),
            "seconds": round(statistics.median(pair[1] for pair in pairs), 4),
            "speed": round(statistics.median(speeds), 3),
            "from": round(min(speeds), 3),
            "to": round(max(speeds), 3),
        }
        found = figures[step]
        print(
            f"  {step:<12} {found['seconds_without']:8.3f} s -> {found['seconds']:8.3f} s  "
            f"speed {found['speed']:.2f} ({found['from']:.2f} to {found['to']:.2f}"
            f"{f', bar {bar}' if bar else ''})"
        )
    print(json.dumps({"figures": figures, **describe_machine("torch", "numpy"), "rounds": rounds}))


def write_records(documents: Path, path: Path) -> int:
    """Add the three fields to every record."""
    num_records = 0
    with documents.open() as source, path.open("w") as file:
        for number, line in enumerate(source):
            fields = {
                "id": f"doc-{number:08d}",
                "label": f"class-{hash_of(number) % LABELS}",
                "number": hash_of(number),
            }
            text = json.loads(line)["text"]
            file.write(json.dumps({**fields, "text": text}, ensure_ascii=False) + "\n")
            num_records += 1
    return num_records


def hash_of(number: int) -> int:
    """Return a number that looks random."""
    return number * 2_654_435_761 % 2**32


def measure(
    records: Path, tokenizer: str, executor: Executor, layout: str, folder: Path
) -> dict[str, float]:
    """Time every step once, without and with columns."""
    times: dict[str, float] = {}

    def timed(step: str, function: Callable[[], Any]) -> None:
        started = time.perf_counter()
        function()
        times[step] = time.perf_counter() - started

    options = PackOptions(layout=layout, max_tokens=8192 if layout == "varlen" else None)
    for step, keep in ((" without", ()), ("", KEEP)):
        tokens, shards = folder / f"tokens{step}", folder / f"shards{step}"
        tokenizing = TokenizeOptions(tokenizer=tokenizer, keep=keep, max_length=MAX_LENGTH)
        run = {"executor": executor, "overwrite": True}
        timed(f"tokenize{step}", lambda: tokenize(records, tokens, tokenizing, **run))  # noqa: B023
        timed(f"pack{step}", lambda: pack(tokens, shards, options, **run))  # noqa: B023
    for step, columns in (("load without", []), ("load label", ["label"]), ("load all", None)):
        dataset = ShardDataset(folder / "shards", columns=columns)
        dataset[0]
        timed(step, lambda: [dataset[index] for index in range(len(dataset))])  # noqa: B023
    return times


if __name__ == "__main__":
    main()
