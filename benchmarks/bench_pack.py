"""How fast is `seqpack pack` compared with copying, and its parts compared with torch and TRL?

    python benchmarks/bench_pack.py STORE [--runs 3] [--case commands] …

STORE is a token store of at least 100 million tokens. Cases, each with its rival in the same run:

commands   whole commands on both cores, with start-up, planning, BLAKE3 and fsync; the store is in
           the page cache. Rivals: `cp -r` and sync of the store (packed) or of its output (padded),
           and BLAKE3 of the shards alone in two processes.
arrays     batches of 64 laid out in memory on one core, rows already sorted, over all (sorted) or
           within each batch (windows). Rival: torch's `pack_sequence`.
bins       `--layout varlen --max-tokens 2048` planned for a million log-normal lengths. Rival:
           TRL's `pack_dataset(strategy="bfd")`, which moves ids too. Each in its own process.
planning   ten million sequences, time and memory.

Not measured: cold disks, a store larger than the memory. `bins` needs the extra `bench`.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from machine import describe_machine

from seqpack_cli import PackOptions, open_store
from seqpack_cli.batching.plan import Plan, plan_batches
from seqpack_cli.shards.time_steps import pack_batches

HASH_COMMAND = (
    f"{sys.executable} -c 'import sys; from blake3 import blake3; "
    "blake3().update_mmap(sys.argv[1]).digest()'"
)
CASES = ("commands", "arrays", "bins", "planning")
BATCH_SIZE = 64
ROW_LENGTH = 2048
NUM_TOKENS = 30_000_000  # of the arrays case
SPREAD = 0.8  # sigma of the log-normal lengths, as in real texts


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=3)
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES))
@click.option("--alone", hidden=True)
def main(store: Path, runs: int, cases: tuple[str, ...], alone: str | None) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    if alone is not None:
        print(json.dumps(ALONE[alone]()))
        return
    measure = {
        "commands": lambda: measure_commands(store, runs),
        "arrays": lambda: measure_arrays(runs),
        "bins": lambda: measure_bins(store, runs),
        "planning": lambda: measure_planning(store),
    }
    figures = {case: measure[case]() for case in cases or CASES}
    print(json.dumps({"figures": figures, **describe_machine("numpy"), "runs": runs}))


def measure_commands(store: Path, runs: int) -> dict[str, Any]:
    """Time whole commands and copies in turn."""
    times: dict[str, list[float]] = {}
    num_tokens = open_store(store).num_tokens
    with tempfile.TemporaryDirectory(dir=store.parent) as name:
        folder = Path(name)
        for run in range(runs + 1):  # run 0 warms up
            for layout in ("packed", "padded"):
                shards, copy = folder / layout, folder / "copy"
                warm(store)
                seconds = time_command(pack_command(store, shards, layout))
                source = store if layout == "packed" else shards
                warm(source)
                copied = time_command(f"cp -r {source} {copy} && sync -f {copy}")
                hashed = time_command(f"ls {shards}/*.safetensors | xargs -P 2 -n 1 {HASH_COMMAND}")
                if run > 0:
                    times.setdefault(f"BLAKE3 of {layout} alone, 2 processes", []).append(hashed)
                    times.setdefault(f"pack --layout {layout}", []).append(seconds)
                    times.setdefault(f"cp of {source.name} + sync", []).append(copied)
                num_bytes = sum(path.stat().st_size for path in source.iterdir())
                print(f"  {layout}: {seconds:.2f} s, cp of {num_bytes / 1e6:.0f} MB {copied:.2f} s")
                shutil.rmtree(copy)
                shutil.rmtree(shards)
    figures = {name: summarize(seconds) for name, seconds in times.items()}
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {name:<28} {median:8.3f} s  {num_tokens / 1e6 / median:8.1f} M tokens/s")
    copies = {"packed": f"cp of {store.name} + sync", "padded": "cp of padded + sync"}
    for layout, rival in copies.items():
        ours = f"pack --layout {layout}"
        figures[ours]["of_cp"] = ratio(times[rival], times[ours])
        print(f"  {ours}: {figures[ours]['of_cp']:.2f} of {rival}")
    return figures


def measure_arrays(runs: int) -> dict[str, Any]:
    """Time how seqpack and torch lay out batches in memory."""
    import torch
    from torch.nn.utils.rnn import pack_sequence

    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    for mean in (200, 25):
        for kind in ("sorted", "windows"):
            ids, lengths, offsets = make_rows(mean, sort_all=kind == "sorted")
            rows = torch.split(torch.from_numpy(ids.view(np.int16)), lengths.tolist())
            batches = [rows[start : start + BATCH_SIZE] for start in offsets[:-1].tolist()]
            rates: dict[str, list[float]] = {"seqpack": [], "torch": []}
            for run in range(runs + 1):  # run 0 warms up
                ours, (data, batch_sizes, _) = timed(lambda: pack_batches(ids, lengths, offsets))  # noqa: B023
                theirs, packed = timed(lambda: [pack_sequence(batch) for batch in batches])  # noqa: B023
                if run > 0:
                    rates["seqpack"].append(len(ids) / ours / 1e6)
                    rates["torch"].append(len(ids) / theirs / 1e6)
            expected = torch.cat([batch.data for batch in packed]).numpy().view(np.uint16)
            assert np.array_equal(data, expected)
            expected_sizes = torch.cat([batch.batch_sizes for batch in packed]).numpy()
            assert np.array_equal(batch_sizes, expected_sizes)
            found = {name: round(statistics.median(rate), 1) for name, rate in rates.items()}
            times_torch = round(found["seqpack"] / found["torch"], 2)
            figures[f"mean {mean}, {kind}"] = {**found, "times_torch": times_torch}
            print(f"  mean {mean}, {kind}: M tokens/s {found}, {times_torch} x torch")
    return figures


def make_rows(mean: int, *, sort_all: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw log-normal lengths, sort all of them or only each batch, and draw ids."""
    generator = np.random.default_rng(0)
    num_rows = NUM_TOKENS // mean // BATCH_SIZE * BATCH_SIZE
    drawn = generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, num_rows)
    lengths = np.maximum(drawn, 1).astype(np.int64)
    if not sort_all:
        lengths = lengths.reshape(-1, BATCH_SIZE)
    lengths = -np.sort(-lengths, axis=-1).reshape(-1)
    ids = generator.integers(0, 50_257, int(lengths.sum())).astype(np.uint16)
    return ids, lengths, np.arange(0, num_rows + 1, BATCH_SIZE)


def measure_bins(store: Path, runs: int) -> dict[str, Any]:
    """Plan a million sequences with seqpack and TRL in turn, each in its own process."""
    found: dict[str, list[dict[str, Any]]] = {"seqpack": [], "trl": [], "trl-whole": []}
    for name, results in found.items():
        for _ in range(runs if name != "trl-whole" else 1):
            results.append(run_alone(store, name))
    figures: dict[str, Any] = {}
    for name, results in found.items():
        seconds = statistics.median(result["seconds"] for result in results)
        figures[name] = {**results[0], "seconds": round(seconds, 3)}
        print(f"  {name}: {figures[name]}")
    for rival in ("trl", "trl-whole"):
        assert figures["seqpack"]["bins"] <= figures[rival]["bins"]
        figures[rival]["times_slower"] = round(
            figures[rival]["seconds"] / figures["seqpack"]["seconds"], 1
        )
    return figures


def draw_lengths(num_sequences: int, longest: int) -> np.ndarray:
    """Draw log-normal lengths, cut to the longest."""
    drawn = np.random.default_rng(0).lognormal(5, 1, num_sequences)
    return np.clip(drawn, 1, longest).astype(np.int32)


@dataclass(eq=False)
class OnePart:
    """The lengths of a store that exists only in memory."""

    lengths: np.ndarray

    def __post_init__(self) -> None:
        self.part_offsets = np.array([0, len(self.lengths)])

    def part_lengths(self, number: int) -> np.ndarray:
        """Return all lengths."""
        assert number == 0
        return self.lengths


def make_plan(lengths: np.ndarray, options: PackOptions) -> Plan:
    """Plan a store of these lengths."""
    return plan_batches(OnePart(lengths), options)


def plan_bins_alone() -> dict[str, Any]:
    """Plan with seqpack."""
    lengths = draw_lengths(1_000_000, ROW_LENGTH)
    options = PackOptions("varlen", max_tokens=ROW_LENGTH).resolve()
    seconds, plan = timed(lambda: make_plan(lengths, options))
    assert int(plan.table.num_tokens.max()) <= ROW_LENGTH
    return describe_bins(seconds, plan.num_batches, lengths)


def plan_bins_with_trl(map_batch: int) -> dict[str, Any]:
    """Pack with TRL, which cannot plan without moving ids: they are of one byte, the smallest."""
    import datasets
    import pyarrow as pa
    from trl import pack_dataset

    datasets.disable_caching()
    datasets.disable_progress_bars()
    lengths = draw_lengths(1_000_000, ROW_LENGTH)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ids = pa.LargeListArray.from_arrays(offsets, np.zeros(int(offsets[-1]), np.int8))
    dataset = datasets.Dataset(pa.table({"input_ids": ids}))
    seconds, packed = timed(
        lambda: pack_dataset(
            dataset, ROW_LENGTH, strategy="bfd", map_kwargs={"batch_size": map_batch}
        )
    )
    return describe_bins(seconds, len(packed), lengths)


def describe_bins(seconds: float, num_bins: int, lengths: np.ndarray) -> dict[str, Any]:
    """Return time and bins beside the lower bound."""
    fewest = -(-int(lengths.sum()) // ROW_LENGTH)
    above = round(num_bins / fewest - 1, 6)
    return {"seconds": seconds, "bins": num_bins, "lower_bound": fewest, "above_it": above}


def measure_planning(store: Path) -> dict[str, Any]:
    """Plan ten million sequences in a process of its own."""
    figures = {}
    for name in PLANS:
        figures[name] = run_alone(store, name)
        print(f"  {name}: {figures[name]}")
    return figures


def plan_alone(options: PackOptions) -> dict[str, Any]:
    """Plan, and measure how far the memory rises above that of the lengths."""
    lengths = np.random.default_rng(0).integers(1, 400, 10_000_000, np.int32)
    lengths[::7] = 2000
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = read_memory("VmRSS")
    seconds, plan = timed(lambda: make_plan(lengths, options.resolve()))
    risen = read_memory("VmHWM") - before
    return {
        "seconds": round(seconds, 2),
        "bytes_a_sequence": round(risen / len(lengths), 1),
        "batches": plan.num_batches,
    }


def read_memory(name: str) -> int:
    """Read the memory of this process, now (VmRSS) or at most (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


PLANS = {
    "length": PackOptions(),
    "shuffled-windows": PackOptions(shuffle=True, window=4096),
    "buckets": PackOptions("padded", buckets="auto", shuffle=True),
    "budget": PackOptions("padded", max_tokens=32_768),
    "varlen": PackOptions("varlen", max_tokens=ROW_LENGTH),
}
ALONE: dict[str, Callable[[], dict[str, Any]]] = {
    "seqpack": plan_bins_alone,
    "trl": lambda: plan_bins_with_trl(1000),  # datasets' own default
    "trl-whole": lambda: plan_bins_with_trl(1_000_000),
    **{name: lambda options=options: plan_alone(options) for name, options in PLANS.items()},
}


def run_alone(store: Path, name: str) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, str(store), "--alone", name]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def pack_command(store: Path, shards: Path, layout: str) -> str:
    """Return the command that a user would type."""
    seqpack = Path(sys.executable).with_name("seqpack")
    return f"{seqpack} pack {store} --layout {layout} -o {shards} -q"


def time_command(command: str) -> float:
    """Run a command in a shell and return its seconds."""
    started = time.perf_counter()
    subprocess.run(["bash", "-c", command], check=True)
    return time.perf_counter() - started


def warm(folder: Path) -> None:
    """Read files into the page cache, and wait for earlier writes to reach the disk."""
    os.sync()
    for path in folder.iterdir():
        path.read_bytes()


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def summarize(seconds: list[float]) -> dict[str, Any]:
    """Return median and spread."""
    median = statistics.median(seconds)
    spread = (max(seconds) - min(seconds)) / median
    return {"seconds": round(median, 3), "spread": round(spread, 3)}


def ratio(rival: list[float], ours: list[float]) -> float:
    """Return how many times as fast as the rival we are, by medians."""
    return round(statistics.median(rival) / statistics.median(ours), 3)


if __name__ == "__main__":
    main()
