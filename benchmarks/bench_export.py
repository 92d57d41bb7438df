"""How fast is `seqpack export` to each format, and how large are the files?

python benchmarks/bench_export.py STORE [--to FORMAT] [--runs 3]

Rivals on the same work: for `parquet` pyarrow's writer with other settings, on the same tables; for
`megatron` and `nanogpt` a copy of the ids with fsync. Processor seconds and wall seconds; MB are
those of the store's ids. The files are read from the system's cache. Run it with PYTHONPATH at
another checkout to compare versions. Not measured: the start of Python (0.4 s with pyarrow), and
the first reading from the disk.
"""

from __future__ import annotations

import argparse
import functools
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

from seqpack_cli import TokenStore, export, open_store

FORMATS = ("parquet", "megatron", "nanogpt")
LISTS = [f"{name}.list.element" for name in ("input_ids", "labels")]
ZSTD = {"compression": "zstd", "write_statistics": False, "store_schema": False}
PAGES = {"write_batch_size": 1 << 16, "data_page_size": 4 << 20}
MASK = {"use_dictionary": ["attention_mask.list.element"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "pyarrow, its defaults": {},
    "pyarrow, dictionaries, zstd": {**ZSTD, **PAGES},
    "pyarrow, plain, zstd": {**ZSTD, **PAGES, **MASK},
    "pyarrow, split bytes, zstd": {
        **{**ZSTD, **PAGES, **MASK},
        "column_encoding": dict.fromkeys(LISTS, "BYTE_STREAM_SPLIT"),
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


def read_tables(folder: Path) -> list[pa.Table]:
    """Read what export wrote, a table for each row group."""
    files = map(pq.ParquetFile, sorted(folder.iterdir()))
    return [file.read_row_group(n) for file in files for n in range(file.num_row_groups)]


def write_with_pyarrow(tables: list[pa.Table], path: Path, settings: dict[str, Any]) -> None:
    """Write tables with pyarrow's writer."""
    with pq.ParquetWriter(path, tables[0].schema, **settings) as writer:
        for table in tables:
            writer.write_table(table)


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
                tables = read_tables(output)
                for setting, values in SETTINGS.items():
                    rival = functools.partial(write_with_pyarrow, tables, output, values)
                    measure(setting, rival, output, options.runs, num_bytes)
            else:
                copy = lambda: copy_ids(store, output)  # noqa: E731
                measure("a copy with fsync", copy, output, options.runs, num_bytes)
    print(json.dumps(describe_machine("numpy", "pyarrow")))


if __name__ == "__main__":
    main()
