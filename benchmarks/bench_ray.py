"""What does `--executor ray` cost on one machine, compared with as many local workers?

    python benchmarks/make_corpora.py CORPORA …
    python benchmarks/bench_ray.py CORPORA/documents.jsonl --tokenizer gpt2.tokenizer.json

Times the whole commands `tokenize` and `pack`, from start to published manifest: with local
workers, on a running Ray cluster, and on a cluster that the command starts and ends. All run on the
same cores, in turn; stores and shards must be equal, file by file. The input is in the page cache.
`start` is the same command over one line of text: the fixed cost of a run. Not measured: several
machines, an object store, a network file system. Needs the extra `ray`.
"""

from __future__ import annotations

import contextlib
import hashlib
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
from blake3 import blake3
from machine import describe_machine

PACKAGES = ("ray", "tokenizers", "fastokens", "numpy")
SEQPACK = [sys.executable, "-m", "seqpack_cli"]
REQUIRED = 0.8  # of the local throughput, on 1 GB


@click.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--tokenizer", default="bytes", show_default=True)
@click.option("--num-workers", default=2, show_default=True)
@click.option("--runs", default=3, show_default=True)
def main(corpus: Path, tokenizer: str, num_workers: int, runs: int) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    figures: dict[str, Any] = {}
    # A folder of its own, so that Ray finds no other cluster; paths of its sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray-") as name, running_cluster(name) as address:
        folder = Path(name)
        ways = {
            "local": (),
            "ray, running": ("--executor", "ray", "--ray-address", address),
            "ray, started": ("--executor", "ray", "--ray-address", "local"),
        }
        line = folder / "line.jsonl"
        line.write_text('{"text": "one"}\n')
        local = folder / "local-store"
        tokenize = ["--tokenizer", tokenizer, "--num-workers", str(num_workers)]
        pack = ["--num-workers", str(num_workers)]
        for case, arguments, num_bytes in (
            ("start", ["tokenize", str(line), *tokenize], 0),
            ("tokenize", ["tokenize", str(corpus), *tokenize], corpus.stat().st_size),
            ("pack", ["pack", str(local), *pack], corpus.stat().st_size),
        ):
            if case == "pack":
                run_seqpack(["tokenize", str(corpus), *tokenize], (), local)
            figures[case] = measure(case, arguments, ways, num_bytes, folder / "out", runs)
    print(json.dumps({"figures": figures, **describe_machine(*PACKAGES), "runs": runs}))


@contextlib.contextmanager
def running_cluster(folder: str) -> Iterator[str]:
    """Start a cluster with all cores, and yield its address."""
    os.environ["RAY_TMPDIR"] = folder
    from ray.cluster_utils import Cluster

    options = {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def measure(
    case: str,
    arguments: list[str],
    ways: dict[str, tuple[str, ...]],
    num_bytes: int,
    output: Path,
    runs: int,
) -> dict[str, Any]:
    """Run each way in turn; print and return the medians."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    digests = set()
    for run in range(-1, runs):  # the first to warm up
        for way, options in ways.items():
            took = run_seqpack(arguments, options, output)
            digests.add(hash_folder(output))
            if run >= 0:
                seconds[way].append(took)
    assert len(digests) == 1, "other bytes"
    local = statistics.median(seconds["local"])
    print(f"{case}: {num_bytes / 1e6:.0f} MB", flush=True)
    figures = {}
    for way, found in seconds.items():
        median = statistics.median(found)
        spread = (max(found) - min(found)) / median
        figures[way] = {"seconds": round(median, 3), "spread": round(spread, 3)}
        text = f"  {way:<14} {median:8.2f} s ({spread:4.0%})"
        if num_bytes:
            share = local / median
            figures[way] |= {
                "megabytes_per_second": round(num_bytes / 1e6 / median, 2),
                "share_of_local_throughput": round(share, 3),
            }
            text += f" {num_bytes / 1e6 / median:8.2f} MB/s, {share:.2f} of local"
            text += f" (required on 1 GB: {REQUIRED})" if way != "local" else ""
        print(text, flush=True)
    return figures


def run_seqpack(arguments: list[str], options: tuple[str, ...], output: Path) -> float:
    """Time one whole command into a new folder."""
    shutil.rmtree(output, ignore_errors=True)
    warm_page_cache(Path(arguments[1]))
    started = time.perf_counter()
    subprocess.run([*SEQPACK, *arguments, *options, "-q", "-o", str(output)], check=True)
    return time.perf_counter() - started


def warm_page_cache(path: Path) -> None:
    """Read the input once: some machines drop what was not read for a minute."""
    for file in path.iterdir() if path.is_dir() else [path]:
        with file.open("rb") as opened:
            while opened.read(1 << 20):
                pass


def hash_folder(folder: Path) -> str:
    """Hash all files of a folder except run.json, which differs between runs."""
    digest = blake3()
    for path in sorted(folder.iterdir()):
        if path.name != "run.json":
            digest.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, blake3).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
