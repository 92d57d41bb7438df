"""How fast is import, compared with copying the same files?

    python benchmarks/bench_import.py [--megabytes 1000] [--tokens 1000] [--runs 5]

The rival is `cp` of the input followed by a sync of the copies, which does as much work on the disk
as an import that keeps the dtype. Both run as commands, in turn, on the same random ids; the ids of
the store are compared with the input in every run. Not measured: cold input (the files are in the
page cache), object stores, machines with many cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from machine import describe_machine

EOS = 50256
OPTIONS = ["--vocab-size", str(EOS + 1), "-q"]
BLOCK_IDS = 1 << 24
# An installed package is compiled once, not by every command.
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@click.command()
@click.option("--megabytes", default=1000)
@click.option("--tokens", default=1000, help="In a document, on average.")
@click.option("--runs", default=5)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False))
def main(megabytes: int, tokens: int, runs: int, folder: Path | None) -> None:
    """Print a table of medians, and one JSON document as the last line."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        inputs = make_inputs(Path(name), megabytes * 500_000, tokens)
        figures = {case: measure(paths, more, runs) for case, (paths, more) in inputs.items()}
    for case, found in figures.items():
        low, median, high = found["share_of_cp"]
        print(
            f"  {case:<16} {found['import_seconds']:7.2f} s, cp {found['cp_seconds']:7.2f} s, "
            f"{median:.2f} ({low:.2f} to {high:.2f}) of its speed, {found['cpu_seconds']:.2f} s CPU"
        )
    document = {"figures": figures, "megabytes": megabytes, "tokens": tokens, "runs": runs}
    print(json.dumps({**document, **describe_machine("numpy", "blake3", "xxhash")}))


def make_inputs(folder: Path, num_ids: int, tokens: int) -> dict[str, tuple[list[Path], list[str]]]:
    """Write the same random ids as a pair and as a flat file; return files and options."""
    chance = np.random.default_rng(0)
    lengths = chance.geometric(1 / tokens, num_ids // tokens).astype("<i4")
    ends = np.cumsum(lengths, dtype="<i8")
    folder = folder / "in"
    folder.mkdir()
    paths = [folder / name for name in ("ids.bin", "ids.idx", "flat.npy")]
    flat = np.lib.format.open_memmap(paths[2], "w+", np.uint16, (int(ends[-1]),))
    for first in range(0, len(flat), BLOCK_IDS):
        flat[first : first + BLOCK_IDS] = chance.integers(0, EOS, BLOCK_IDS)[: len(flat) - first]
    flat[ends - 1] = EOS
    flat.tofile(paths[0])
    with paths[1].open("wb") as file:
        head = [len(lengths), len(lengths) + 1]
        file.write(b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + b"\x08")
        for array in (np.array(head, "<u8"), lengths, (ends - lengths) * 2):
            file.write(array.tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    return {"pair": (paths[:2], []), "flat": ([paths[2]], ["--eos", str(EOS)])}


def measure(paths: list[Path], more: list[str], runs: int) -> dict[str, Any]:
    """Time copy and import in turn, after one of each that warms up."""
    folder, found = paths[0].parent.parent, []
    store, copies = folder / "store", folder / "copies"
    expected = hash_ids([paths[0]])
    command = [sys.executable, "-m", "seqpack_cli", "import", str(paths[0]), "-o", str(store)]
    for run in range(runs + 1):
        copies.mkdir()
        cp = timed(lambda: copy(paths, copies))
        shutil.rmtree(copies)
        ours = timed(lambda: subprocess.run([*command, *OPTIONS, *more], env=ENV, check=True))
        assert hash_ids(sorted(store.glob("*.bin"))) == expected
        shutil.rmtree(store)
        if run:
            found.append((*cp, *ours))
    shares = sorted(cp / ours for cp, _, ours, _ in found)
    return {
        "import_seconds": round(statistics.median(row[2] for row in found), 3),
        "cp_seconds": round(statistics.median(row[0] for row in found), 3),
        "share_of_cp": [
            round(share, 3) for share in (shares[0], statistics.median(shares), shares[-1])
        ],
        "cpu_seconds": round(statistics.median(row[3] for row in found), 3),
        "cp_cpu_seconds": round(statistics.median(row[1] for row in found), 3),
    }


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that a function took, and those of the CPU in its child processes."""
    os.sync()  # what earlier steps left
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    function()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def copy(paths: list[Path], folder: Path) -> None:
    """Copy files, and wait until they are on the disk."""
    subprocess.run(["cp", *paths, folder], check=True)
    subprocess.run(["sync", *folder.iterdir()], check=True)


def hash_ids(paths: list[Path]) -> str:
    """Return a checksum of the ids in files, which may be arrays of numpy."""
    digest = hashlib.sha256()
    for path in paths:
        is_array = path.suffix == ".npy"
        ids = np.load(path, mmap_mode="r") if is_array else np.memmap(path, np.uint16, "r")
        for first in range(0, len(ids), BLOCK_IDS):
            digest.update(ids[first : first + BLOCK_IDS].tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
