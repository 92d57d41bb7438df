"""How fast is a run with its files in an object store, compared with local files?

    python benchmarks/bench_remote.py [CORPUS] [--tokenizer gpt2.json] [--server "COMMAND"]

The same corpus, a file or by default --megabytes of the samples, goes through tokenize, pack and
one read of every batch, with local files and with `s3://` of a server on this machine, in turn; the
parts and shards must be equal. Without `--server` it is moto's, which is slow; in COMMAND, {port}
and {folder} are replaced:

    rclone serve s3 --addr 127.0.0.1:{port} --auth-key tester,secret {folder}
    weed server -s3 -ip 127.0.0.1 -s3.port {port} -dir {folder}

The server uses the same cores: its CPU seconds are printed with the ratio. Not measured: a network,
other machines, cold disks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from machine import describe_machine

from seqpack_cli import (
    PackOptions,
    TokenizeOptions,
    open_shards,
    open_store,
    pack,
    tokenize,
)
from seqpack_cli.files.objects import open_file_system
from seqpack_cli.files.places import Place, parse_place
from seqpack_cli.runs.workers import Executor

MOTO = f"{sys.executable} -m moto.server -H 127.0.0.1 -p {{port}}"
TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 60
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # rclone sends the checksum of the whole object with each range.
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
STEPS = ("tokenize", "pack", "read")


@click.command()
@click.argument("corpus", required=False, type=click.Path(path_type=Path))
@click.option("--tokenizer", default="bytes")
@click.option("--megabytes", default=1000, help="Size of the corpus to make if none is named.")
@click.option("--runs", default=3)
@click.option("--workers", default=2)
@click.option("--server", default=MOTO, help="Command that serves S3.  [default: moto]")
def main(
    corpus: Path | None, tokenizer: str, megabytes: int, runs: int, workers: int, server: str
) -> None:
    """Print a table of medians and ratios, and one JSON document as the last line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SEQPACK_CACHE_DIR"] = str(folder / "cache")
        if corpus is None:
            corpus = write_corpus(folder / "corpus", megabytes * 1_000_000)
        else:
            megabytes = round(corpus.stat().st_size / 1e6)
        with serve(server, folder) as process:
            seconds, server_seconds = measure(corpus, tokenizer, folder, process, runs, workers)
    figures: dict[str, Any] = {}
    for step in STEPS:
        local, remote = (statistics.median(seconds[place, step]) for place in ("local", "s3"))
        figures[step] = {
            "local_seconds": round(local, 2),
            "s3_seconds": round(remote, 2),
            "local_spread": spread(seconds["local", step]),
            "s3_spread": spread(seconds["s3", step]),
            "ratio": round(local / remote, 3),
            "server_cpu_seconds": round(statistics.median(server_seconds[step]), 2),
        }
        print(
            f"  {step:<9} local {local:7.2f} s {megabytes / local:7.1f} MB/s   s3 {remote:7.2f} s"
            f" {megabytes / remote:7.1f} MB/s   ratio {local / remote:.2f}   server's CPU"
            f" {figures[step]['server_cpu_seconds']:.2f} s"
        )
    what = {
        "megabytes": megabytes,
        "tokenizer": Path(tokenizer).name,
        "runs": runs,
        "workers": workers,
        "server": server,
    }
    print(json.dumps({"figures": figures, **what, **describe_machine("s3fs", "numpy")}))


def measure(
    corpus: Path,
    tokenizer: str,
    folder: Path,
    process: subprocess.Popen[bytes],
    runs: int,
    workers: int,
) -> tuple[dict[tuple[str, str], list[float]], dict[str, list[float]]]:
    """Time every step, local and remote in turn, after one warm-up; return the server's CPU too."""
    system = open_file_system("s3")
    upload(system, corpus)
    places: dict[str, tuple[str, Place]] = {
        "local": (str(corpus), folder / "run"),
        "s3": ("s3://bucket/corpus", parse_place("s3://bucket/run")),
    }
    seconds: dict[tuple[str, str], list[float]] = {}
    server_seconds: dict[str, list[float]] = {}
    for number in range(runs + 1):
        for place, (source, output) in places.items():
            shutil.rmtree(folder / "cache", ignore_errors=True)
            for step, function in make_steps(source, output, tokenizer, workers).items():
                began, cpu = time.perf_counter(), read_cpu(process.pid)
                function()
                if number > 0:
                    seconds.setdefault((place, step), []).append(time.perf_counter() - began)
                if number > 0 and place == "s3":
                    server_seconds.setdefault(step, []).append(read_cpu(process.pid) - cpu)
        check_equal(folder / "run", places["s3"][1])
    return seconds, server_seconds


def make_steps(
    source: str, output: Place, tokenizer: str, workers: int
) -> dict[str, Callable[[], Any]]:
    """Return the three steps, with local files or objects."""
    tokens, shards = output / "tokens", output / "shards"

    def read() -> None:
        from seqpack_cli import ShardDataset  # not at the top: workers would import torch, too

        dataset = ShardDataset(shards)
        for index in range(len(dataset)):
            dataset[index].sequences.data.sum()

    return {
        "tokenize": lambda: tokenize(
            [source],
            tokens,
            TokenizeOptions(tokenizer=tokenizer),
            executor=Executor(num_workers=workers),
            overwrite=True,
        ),
        "pack": lambda: pack(
            tokens, shards, PackOptions(), executor=Executor(num_workers=workers), overwrite=True
        ),
        "read": read,
    }


def check_equal(local: Path, remote: Place) -> None:
    """Raise unless both have the same parts and shards."""
    stores = [open_store(place / "tokens").manifest["parts"] for place in (local, remote)]
    hashes = [[part["files"] for part in parts] for parts in stores]
    assert hashes[0] == hashes[1]
    here, there = (open_shards(place / "shards") for place in (local, remote))
    # Without the store's digest: its manifest contains the paths of the texts.
    counts = [
        [entry["num_tokens"] for entry in found.manifest["shards"]] for found in (here, there)
    ]
    assert counts[0] == counts[1]


def write_corpus(folder: Path, num_bytes: int) -> Path:
    """Write text files of 64 MB from the samples, every line numbered."""
    lines = (Path(__file__).parent.parent / "sample_data" / "stories.txt").read_text().splitlines()
    folder.mkdir()
    number = 0
    for start in range(0, num_bytes, 64_000_000):
        left = min(64_000_000, num_bytes - start)
        with (folder / f"{start:015}.txt").open("w") as file:
            while left > 0:
                left -= file.write(f"{number} {lines[number % len(lines)]}\n")
                number += 1
    return folder


def upload(system: Any, corpus: Path) -> None:
    """Upload the corpus."""
    system.mkdir("bucket")
    for path in corpus.iterdir() if corpus.is_dir() else [corpus]:
        system.put_file(str(path), f"bucket/corpus/{path.name}")


@contextlib.contextmanager
def serve(command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; point botocore to it, here and in workers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = 20_000 + listener.getsockname()[1] % 20_000  # seaweedfs takes port + 10,000 too
    (folder / "served").mkdir()
    arguments = shlex.split(command.format(port=port, folder=folder / "served"))
    os.environ.update(ENVIRONMENT, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        wait_until_it_answers(process, port)
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    """Return when a server accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


def read_cpu(pid: int) -> float:
    """Return the CPU seconds of a process; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def spread(seconds: list[float]) -> float:
    """Return the range of the runs as a share of the median."""
    return round((max(seconds) - min(seconds)) / statistics.median(seconds), 3)


if __name__ == "__main__":
    main()
