"""How fast is `seqpack export` to each format, and how large are the files?

python benchmarks/bench_export.py STORE [--to FORMAT] [--runs 3]

Rivals on the same work: for `parquet` pyarrow's own writer with three settings, on the same tables;
for `megatron` and `nanogpt` a copy of the ids with fsync. Processor seconds and wall seconds; MB
are those of the store's ids. The files are read from the system's cache. Not measured: the start of
Python (0.4 s with pyarrow), and the first reading from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from machine import describe_machine

from seqpack_cli import export, open_store
from seqpack_cli.shards.exports.arrow_tables import SequenceTables
from seqpack_cli.shards.exports.formats import FORMATS
from seqpack_cli.shards.exports.parquet_files import open_parquet
from seqpack_cli.shards.exports.source import StoreSource
from seqpack_cli.tokens.store import TokenStore

LISTS = ("input_ids", "labels")
SPLIT = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in LISTS}
SETTINGS: dict[str, dict[str, Any]] = {
    "pyarrow, its defaults": {},
    "pyarrow, plain": {"compression": "none", "use_dictionary": False, "write_statistics": False},
    "pyarrow, split bytes, zstd": {
        **{"compression": "zstd", "use_dictionary": ["attention_mask.list.element"]},
        **{"column_encoding": SPLIT, "write_statistics": False, "write_batch_size": 8192},
    },
}


def measure(name: str, work: Callable[[], object], output: Path, runs: int, num_bytes: int) -> None:
    """Print the median of some runs and the size of what they wrote."""
    seconds, wall = [], []
    for _ in range(runs):
        for path in output.parent.glob(f"{output.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        before, start = time.process_time(), time.perf_counter()
        work()
        seconds.append(time.process_time() - before)
        wall.append(time.perf_counter() - start)
    files = [path for path in output.parent.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / num_bytes
    speeds = [num_bytes / 1e6 / statistics.median(each) for each in (seconds, wall)]
    spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
    print(
        f"{name:36} {speeds[0]:7.1f} MB/s a core (± {spread / 2:.0%}), {speeds[1]:7.1f} MB/s, "
        f"{size:.3f} bytes per byte",
        flush=True,
    )


def write_with_pyarrow(store: TokenStore, path: Path, settings: dict[str, Any]) -> None:
    """Write the tables that export makes with pyarrow's writer."""
    source = StoreSource(store)
    tables = SequenceTables(pa, store.columns, has_documents=source.num_documents is not None)
    made = map(tables.make, source.iter_blocks())
    first = next(made)
    with pq.ParquetWriter(path, first.schema, **settings) as writer:
        writer.write_table(first)
        for table in made:
            writer.write_table(table)


def write_with_ours(store: TokenStore, path: Path) -> None:
    """Write the same file with our writer, without checks."""
    source = StoreSource(store)
    tables = SequenceTables(pa, store.columns, has_documents=source.num_documents is not None)
    made = map(tables.make, source.iter_blocks())
    first = next(made)
    with path.open("wb") as file, open_parquet(file.write, first.schema) as writer:
        writer.write(first)
        for table in made:
            writer.write(table)


def copy_ids(store: TokenStore, path: Path) -> None:
    """Copy all ids and wait until they are on the disk."""
    with path.open("wb") as file:
        for number in range(store.num_parts):
            file.write(store.view_part(number)[0].tobytes())
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--to", choices=FORMATS)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    store = open_store(options.store)
    num_bytes = sum(part["files"][0]["bytes"] for part in store.manifest["parts"])
    print(f"{store.num_tokens:,} ids of {store.dtype}, {num_bytes / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        output = Path(name) / "out"
        for to in [options.to] if options.to else FORMATS:
            eos = (store.manifest["eos_id"] or 0) if to == "nanogpt" else None

            def run_export(to: str = to, eos: int | None = eos) -> None:
                export(options.store, output, to=to, eos=eos)

            measure(f"export --to {to}", run_export, output, options.runs, num_bytes)
            if to == "parquet":
                ours = lambda: write_with_ours(store, output)  # noqa: E731
                measure("its writer alone", ours, output, options.runs, num_bytes)
                for setting, values in SETTINGS.items():
                    rival = lambda values=values: write_with_pyarrow(store, output, values)  # noqa: E731
                    measure(setting, rival, output, options.runs, num_bytes)
            else:
                copy = lambda: copy_ids(store, output)  # noqa: E731
                measure("a copy with fsync", copy, output, options.runs, num_bytes)
    print(json.dumps(describe_machine("numpy", "pyarrow")))


if __name__ == "__main__":
    main()
