"""How do time and memory grow with workers, with the input, and with the number of sequences?

    python benchmarks/make_corpora.py CORPORA …
    python benchmarks/bench_scale.py CORPORA/documents.jsonl --tokenizer gpt2.tokenizer.json
    python benchmarks/draw_scale.py

Cases, each measured in processes of its own, whole commands from start to finished folder:

workers    `tokenize` of the corpus and `pack` of its store with 1, 2 and 4 workers, in turn.
size       `tokenize`, `pack` and `verify --level structure` of the first 100 MB to 3 GB of the
           corpus, which is read again from its start where it is shorter.
sequences  planning 1e5 to 1e9 made-up lengths, by bench_plan.py, without reading or writing any.

Medians; the files are in the page cache. The figures are kept in benchmarks/scale.json, from which
draw_scale.py makes the pictures of docs/scale.md. Not measured: cold disks, more than one machine.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from machine import describe_machine

FIGURES = Path(__file__).with_name("scale.json")
PLANNER = Path(__file__).with_name("bench_plan.py")
SEQPACK = [sys.executable, "-m", "seqpack_cli"]
PACKAGES = ("numpy", "tokenizers", "fastokens")
NUM_WORKERS = (1, 2, 4)
MEGABYTES = (100, 300, 1000, 3000)
NUM_SEQUENCES = (10**5, 10**6, 10**7, 10**8, 10**9)
MOST_OF_CASE = {"length": 10**9, "windows": 10**9, "whole": 10**8}
BLOCK_BYTES = 1 << 24
Point = dict[str, float]
Series = dict[str, list[Point]]  # by command or plan


@click.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--tokenizer", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=3)
@click.option("--case", "cases", multiple=True, type=click.Choice(["workers", "size", "sequences"]))
def main(corpus: Path, tokenizer: Path, runs: int, cases: tuple[str, ...]) -> None:
    """Print a line for each measurement, keep them, and print them all as the last line."""
    figures = json.loads(FIGURES.read_text())["figures"] if FIGURES.exists() else {}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=corpus.parent) as name:
        measure = {
            "workers": lambda: measure_workers(corpus, tokenizer, Path(name), runs),
            "size": lambda: measure_sizes(corpus, tokenizer, Path(name), runs),
            "sequences": measure_sequences,
        }
        for case in cases or measure:
            figures[case] = measure[case]()
    found = json.dumps({"figures": figures, **describe_machine(*PACKAGES), "runs": runs})
    FIGURES.write_text(found + "\n")
    print(found)


def measure_workers(corpus: Path, tokenizer: Path, folder: Path, runs: int) -> Series:
    """Time tokenize and pack with different numbers of workers; all outputs are equal."""
    store, shards = folder / "store", folder / "shards"
    tokenize = ["tokenize", str(corpus), "--tokenizer", str(tokenizer), "-o", str(store)]
    pack = ["pack", str(store), "-o", str(shards)]
    series: Series = {}
    for command, output in ((tokenize, store), (pack, shards)):
        found: dict[int, list[Point]] = {number: [] for number in NUM_WORKERS}
        made = set()
        for number in NUM_WORKERS * runs:
            shutil.rmtree(output, ignore_errors=True)
            found[number].append(time_command([*command, "--num-workers", str(number)]))
            made.add(find_checksums(output))
        assert len(made) == 1, "the bytes depend on the number of workers"
        series[command[0]] = [summarize(number, points) for number, points in found.items()]
    return series


def measure_sizes(corpus: Path, tokenizer: Path, folder: Path, runs: int) -> Series:
    """Time tokenize, pack and verify of inputs of different sizes."""
    series: Series = {"tokenize": [], "pack": [], "verify": []}
    for megabytes in MEGABYTES:
        text, store, shards = folder / "text.jsonl", folder / "store", folder / "shards"
        write_head(corpus, text, megabytes * 1_000_000)
        tokenize = ["tokenize", str(text), "--tokenizer", str(tokenizer), "-o", str(store)]
        pack = ["pack", str(store), "-o", str(shards)]
        verify = ["verify", str(shards), "--level", "structure"]
        found: dict[str, list[Point]] = {name: [] for name in series}
        for _ in range(runs):
            for output in (store, shards):
                shutil.rmtree(output, ignore_errors=True)
            for command in (tokenize, pack, verify):
                found[command[0]].append(time_command(command))
        for name, points in found.items():
            series[name].append(summarize(text.stat().st_size, points))
    return series


def write_head(corpus: Path, path: Path, num_bytes: int) -> None:
    """Write the first lines of a file, again and again, until there are so many bytes."""
    with path.open("wb") as target:
        while target.tell() < num_bytes:
            with corpus.open("rb") as source:
                left = num_bytes - target.tell()
                for block in read_blocks(source, left):
                    target.write(block)
                if left < corpus.stat().st_size:
                    target.write(source.readline())


def read_blocks(source: Any, num_bytes: int) -> Iterator[bytes]:
    """Read so many bytes, or all there are."""
    while num_bytes > 0 and (block := source.read(min(num_bytes, BLOCK_BYTES))):
        num_bytes -= len(block)
        yield block


def measure_sequences() -> Series:
    """Plan different numbers of sequences."""
    series: Series = {case: [] for case in MOST_OF_CASE}
    for case, most in MOST_OF_CASE.items():
        for number in NUM_SEQUENCES:
            if number > most:
                continue
            command = [sys.executable, str(PLANNER), "--sequences", str(number), "--alone", case]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found = json.loads(output)
            peak = found["peak_megabytes"]
            point = {"at": number, "seconds": found["seconds"], "peak_megabytes": peak}
            print(f"  {case}: {point}", flush=True)
            series[case].append(point)
    return series


def time_command(arguments: list[str]) -> Point:
    """Run one command; return its seconds, those of the processor, and its largest process."""
    os.sync()
    started = time.perf_counter()
    process = subprocess.Popen([*SEQPACK, *arguments, "-q"])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    assert status == 0, arguments
    point = {
        "seconds": seconds,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_megabytes": usage.ru_maxrss / 1000,
    }
    print(f"  {arguments[0]}: {point}", flush=True)
    return point


def summarize(at: float, points: list[Point]) -> Point:
    """Return the medians of the runs at one place of the horizontal axis."""
    medians = {
        name: round(statistics.median(point[name] for point in points), 3) for name in points[0]
    }
    return {"at": at, **medians}


def find_checksums(folder: Path) -> frozenset[str]:
    """Return the checksums of all files of a store or of shards, from their receipts."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    entries = [*manifest.get("shards", []), *iter_part_files(manifest)]
    return frozenset(entry["blake3"] for entry in entries)


def iter_part_files(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entries of the files of each part."""
    for part in manifest.get("parts", []):
        yield from part["files"]


if __name__ == "__main__":
    main()
