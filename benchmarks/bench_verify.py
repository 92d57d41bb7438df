"""How fast is `seqpack verify` on a device, compared with a bare LSTM? How large are its errors?

    python benchmarks/bench_verify.py --device cuda [--tokens 100000000] [--shards SHARDS] …

Runs from the source tree with seqpack's own dependencies only. Without --shards it makes a token
store and packed shards: random ids, log-normal lengths of mean 120, batches of 64, in length order
as pack makes them, or shuffled and sorted within windows as for training (--window 4096).

integers   `structure`, `roundtrip` and both together, with BLAKE3 of the shards and of the store.
           Rivals: BLAKE3 of the same files alone on all cores; the ids alone, sent to the device
           twice (of the shards, and as many of the store). All files are in the page cache.
plan       a whole `--level structure`, opening included, which compares the batches with the plan
           of the token store. Rival: the same shards without a store to plan from.
run        the level `run` over every batch, with reading, sending and checking. Rival: a bare
           nn.LSTM over the same batches, already on the device as int64 ids: embedding and LSTM
           over a PackedSequence, no gradients, no checks, one wait at the end. TF32 is off in both.
errors     the errors that verify reports and their limits, by dtype, with its own model of 64.

The two sides of a comparison run in turn, after a warm-up round. Not measured: cold disks,
optimizers, several GPUs, start-up.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from machine import find_commit
from random_store import keep_folder, make_store

from seqpack_cli import PackOptions, open_shards, pack
from seqpack_cli.files.manifest import MANIFEST_NAME
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import at
from seqpack_cli.runs.workers import count_cores
from seqpack_cli.shards.shard_set import ShardSet, open_packed_stores
from seqpack_cli.verification import verify_run
from seqpack_cli.verification.device import (
    Sender,
    open_device,
    steady_arithmetic,
    synchronize,
)
from seqpack_cli.verification.models.model import Model, ModelShape, build_model
from seqpack_cli.verification.options import DTYPES, VerifyOptions
from seqpack_cli.verification.report import LevelReport, Report
from seqpack_cli.verification.torch_rows import to_torch_rows

CASES = ("integers", "plan", "run", "errors")
HASHED, SENT = "BLAKE3 of the files alone", "ids sent alone"
NUM_TOKENS = {"cuda": 100_000_000, "cpu": 20_000_000}
NUM_RUN_TOKENS = {"cuda": 20_000_000, "cpu": 1_000_000}  # cpu: 130 batches, a minute per round


@click.command()
@click.option("--device", default="cpu", show_default=True)
@click.option(
    "--tokens", type=int, help="Tokens in the shards to make.  [default: 100 M on cuda, else 20 M]"
)
@click.option("--vocab-size", default=32_000, show_default=True)
@click.option("--mean-length", default=120, show_default=True)
@click.option("--window", default=0, show_default=True, help="0 is length order over all.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps what is made, and takes it.")
@click.option("--shards", type=click.Path(exists=True, path_type=Path), help="Take these instead.")
@click.option(
    "--run-tokens",
    type=int,
    help="Tokens in the shards to make for level run.  [default: 20 M on cuda, else 1 M]",
)
@click.option("--hidden-size", default=512, show_default=True)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(list(DTYPES)),
    default=("float32", "bfloat16"),
)
@click.option("--repeats", default=3, show_default=True)
@click.option("--sample", default=32, show_default=True, help="Batches of the case errors.")
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES))
def main(cases: tuple[str, ...], **options: Any) -> None:
    """Print a Markdown table for each case, and one JSON document as the last line."""
    device, repeats = open_device(options["device"]), options["repeats"]
    machine = describe_machine(device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), end="\n\n")
    num_tokens = options["tokens"] or NUM_TOKENS[device.type]
    num_run_tokens = options["run_tokens"] or NUM_RUN_TOKENS[device.type]
    cases, figures = cases or CASES, {}
    with keep_folder(options["folder"]) as folder:
        if "integers" in cases or "plan" in cases:
            shards = find_shards(folder, "integers", num_tokens, options)
        if "integers" in cases:
            figures["integers"] = measure_integers(shards, device, repeats)
        if "plan" in cases:
            figures["plan"] = measure_plan(shards, device, repeats)
        if "run" in cases or "errors" in cases:
            shards = find_shards(folder, "run", num_run_tokens, options)
        if "run" in cases:
            dtypes, hidden_size = options["dtypes"], options["hidden_size"]
            figures["run"] = measure_runs(shards, device, dtypes, hidden_size, repeats)
        if "errors" in cases:
            figures["errors"] = measure_errors(shards, device, options["sample"])
    print(json.dumps({"figures": figures, **machine, "repeats": repeats}))


def find_shards(folder: Path, name: str, num_tokens: int, options: dict[str, Any]) -> Path:
    """Return the shards that were named, or make a store and shards of about num_tokens."""
    if options["shards"] is not None:
        return Path(options["shards"])
    started = time.perf_counter()
    store, shards = folder / f"{name}-store", folder / f"{name}-shards"
    make_store(store, num_tokens, options["vocab_size"], options["mean_length"])
    window = options["window"]
    pack(store, shards, PackOptions(shuffle=True, window=window) if window else PackOptions())
    print(f"{describe_shards(shards)}: made in {time.perf_counter() - started:.1f} s\n")
    return shards


def describe_shards(path: Path) -> str:
    """Return the size of shards in words."""
    shards = open_shards(path)
    ledger = shards.manifest["ledger"]
    return (
        f"{shards.layout}, {ledger['num_tokens']:,} tokens, {ledger['num_sequences']:,} sequences, "
        f"{len(shards):,} batches, {shards.num_shards} shards"
    )


def hash_all(files: list[Path]) -> list[str]:
    """Hash files on all cores."""
    return list(map_ahead(lambda file: at(file).hash(), files, num_threads=count_cores()))


def measure_integers(path: Path, device: torch.device, repeats: int) -> dict[str, Any]:
    """Time the levels that compare integers, and BLAKE3 of the same files, in turn."""
    shards = open_shards(path)
    stores, num_tokens = open_packed_stores(shards).folders, shards.manifest["ledger"]["num_tokens"]
    parts = [(store, part) for store in stores for part in store.manifest["parts"]]
    files = [store.path / file["name"] for store, part in parts for file in part["files"]]
    files += [path / entry["name"] for entry in shards.manifest["shards"]]
    for file in files:
        file.read_bytes()
    names = ("structure", "roundtrip", "both together", HASHED, SENT)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats + 1):
        levels = verify(path, device, level="roundtrip").levels
        assert [level.num_tokens for level in levels] == [num_tokens] * 2
        taken = [level.seconds for level in levels]
        hashing, _ = timed(lambda: hash_all(files))
        sending, num_bytes = timed(lambda: send_all(shards, device))
        if number > 0:  # round 0 warms up
            for name, value in zip(names, (*taken, sum(taken), hashing, sending), strict=True):
                seconds[name].append(value)
    print(f"{describe_shards(path)}; files in the page cache; {repeats} rounds\n")
    figures = {name: summarize(num_tokens, values) for name, values in seconds.items()}
    for name in ("roundtrip", SENT):
        figures[name]["GB/s sent"] = round(num_bytes / 1e9 / statistics.median(seconds[name]), 3)
    print_table(
        ("level", "M tokens/s, best", "median", "spread", "GB/s sent, median"),
        [
            (name, *show(figure), str(figure.get("GB/s sent", "")))
            for name, figure in figures.items()
        ],
    )
    return figures


def send_all(shards: ShardSet, device: torch.device) -> int:
    """Send the ids of all shards to the device twice, as roundtrip does; return the bytes."""
    sender, num_bytes = Sender(device), 0
    for number in range(shards.num_shards):
        data = shards.open_shard(number).tensors["data"]
        for _ in range(2):
            sender.send(data).receive()
            num_bytes += data.nbytes
    synchronize(device)
    return num_bytes


def measure_plan(path: Path, device: torch.device, repeats: int) -> dict[str, Any]:
    """Time `--level structure` with and without the plan of the store, in turn."""
    num_tokens = open_shards(path).manifest["ledger"]["num_tokens"]
    seconds: dict[str, list[float]] = {"compared": [], "not compared": []}
    with tempfile.TemporaryDirectory(dir=path.parent) as alone:
        link_without_store(path, Path(alone))
        for number in range(repeats + 1):
            for name, folder in (("compared", path), ("not compared", Path(alone))):
                taken, report = timed(
                    lambda folder=folder: verify(folder, device, level="structure")
                )
                assert report.passed
                assert report.plan.compared == (name == "compared")
                if number > 0:  # round 0 warms up
                    seconds[name].append(taken)
    pairs = zip(seconds["not compared"], seconds["compared"], strict=True)
    ratio = round(statistics.median(without / with_ for without, with_ in pairs), 3)
    print(f"{describe_shards(path)}; files in the page cache; {repeats} rounds\n")
    figures: dict[str, Any] = {
        name: summarize(num_tokens, taken) for name, taken in seconds.items()
    }
    print_table(
        ("plan", "M tokens/s, best", "median", "spread", "median of rounds"),
        [
            ("compared", *show(figures["compared"]), f"{ratio} x not compared"),
            ("not compared", *show(figures["not compared"]), ""),
        ],
    )
    return {**figures, "compared_times_not_compared": ratio}


def link_without_store(path: Path, alone: Path) -> None:
    """Link a shard set into another folder, with a manifest that refers to no token store."""
    for file in path.iterdir():
        if file.name != MANIFEST_NAME:
            (alone / file.name).hardlink_to(file)
    manifest = json.loads((path / MANIFEST_NAME).read_bytes())
    stores = [{**entry, "path": "nowhere"} for entry in manifest["stores"]]
    (alone / MANIFEST_NAME).write_text(json.dumps({**manifest, "stores": stores}))


def measure_runs(
    path: Path, device: torch.device, dtypes: tuple[str, ...], hidden_size: int, repeats: int
) -> dict[str, Any]:
    """Time the level `run` and the bare LSTM in turn."""
    shards = open_shards(path)
    num_tokens = shards.manifest["ledger"]["num_tokens"]
    batches = [to_torch_rows(batch).to_packed_sequence(device) for batch in shards]
    assert sum(len(batch.data) for batch in batches) == num_tokens
    figures, rows = {}, []
    for dtype in dtypes:
        shape = ModelShape(shards.manifest["max_id"] + 1, hidden_size=hidden_size)
        model = build_model(shape, device=device, dtype=getattr(torch, dtype), seed=0)
        ours, bare = [], []
        for number in range(repeats + 1):
            level = run_level(path, device, dtype, hidden_size)
            assert level.num_tokens == num_tokens
            seconds = time_bare(model, batches, device, hidden_size)
            if number > 0:  # round 0 warms up
                ours.append(level.seconds)
                bare.append(seconds)
        ratios = [theirs / max(mine, 1e-3) for mine, theirs in zip(ours, bare, strict=True)]
        ratio = round(statistics.median(ratios), 3)
        figures[dtype] = {
            "run": summarize(num_tokens, ours),
            "bare": summarize(num_tokens, bare),
            "run_times_bare": ratio,
            "batches": len(batches),
        }
        rows.append((f"run, {dtype}", *show(figures[dtype]["run"]), f"{ratio} x bare"))
        rows.append((f"bare nn.LSTM, {dtype}", *show(figures[dtype]["bare"]), ""))
    print(
        f"{describe_shards(path)}; lstm, hidden size {hidden_size}, embeddings of "
        f"{max(1, hidden_size // 2)}; {repeats} rounds\n"
    )
    print_table(("way", "M tokens/s, best", "median", "spread", "median of rounds"), rows)
    return figures


def run_level(path: Path, device: torch.device, dtype: str, hidden_size: int) -> LevelReport:
    """Verify up to the level `run`, and return that level."""
    report = verify(
        path,
        device,
        level="run",
        sample=1,
        hidden_size=hidden_size,
        dtype=dtype,
    )
    (level,) = [level for level in report.levels if level.level == "run"]
    return level


def time_bare(
    model: Model, batches: list[PackedSequence], device: torch.device, hidden_size: int
) -> float:
    """Time embedding and LSTM over all batches, with the arithmetic and threads of verify."""

    model.recurrent.eval()

    def run() -> None:
        for batch in batches:
            inputs = PackedSequence(model.embedding(batch.data), batch.batch_sizes, None, None)
            model.recurrent(inputs)
        synchronize(device)

    with steady_arithmetic(device, hidden_size=hidden_size), torch.no_grad():
        synchronize(device)
        return timed(run)[0]


def measure_errors(path: Path, device: torch.device, sample: int) -> dict[str, Any]:
    """Read the errors of forward and backward and their limits from verify's reports."""
    figures: dict[str, Any] = {}
    rows = []
    for dtype in DTYPES:
        report = verify(
            path, device, level="backward", sample=sample, every_batch=False, dtype=dtype
        )
        figures[dtype] = {level.level: list_errors(level) for level in report.levels[2:]}
        name = dtype if report.is_gate else f"{dtype}, not judged"
        rows += [(name, *row) for level in report.levels[2:] for row in find_worst(level)]
    print(f"{describe_shards(path)}; {sample} batches, lstm, hidden size 64\n")
    head = ("dtype", "level", "quantity nearest to its limit", "error", "limit", "share")
    print_table(head, rows)
    return figures


def list_errors(level: LevelReport) -> dict[str, list[float]]:
    """Return error and limit of every quantity whose limit is not zero."""
    return {
        name: [float(f"{size.error:.2e}"), float(f"{size.limit:.2e}")]
        for name, size in level.errors.items()
        if size.limit > 0
    }


def find_worst(level: LevelReport) -> list[tuple[str, ...]]:
    """Return, for each way and kind of quantity, the one that came closest to its limit."""
    found = []
    for way in ("alone", "packed", "padded"):
        for is_weight in (False, True):
            sizes = [
                size
                for size in level.errors.values()
                if size.quantity.startswith(f"{way} ")
                and ("gradient of weight" in size.quantity) == is_weight
                and size.limit > 0
            ]
            if sizes:
                size = max(sizes, key=lambda size: size.share)
                numbers = (f"{size.error:.1e}", f"{size.limit:.1e}", f"{size.share:.2f}")
                found.append((level.level, size.quantity, *numbers))
    return found


def verify(path: Path, device: torch.device, **options: Any) -> Report:
    """Verify and print the findings: the limits themselves may be what is measured."""
    report = verify_run.verify(path, VerifyOptions(device=str(device), **options))
    for finding in report.findings[:5]:
        print(f"FOUND: {finding}")
    return report


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def summarize(num_tokens: int, seconds: list[float]) -> dict[str, float]:
    """Return best and median in millions of tokens per second, and the spread of the seconds."""
    seconds = [max(value, 1e-3) for value in seconds]  # reports round to 1 ms
    median = statistics.median(seconds)
    return {
        "best": round(num_tokens / 1e6 / min(seconds), 4),
        "median": round(num_tokens / 1e6 / median, 4),
        "spread": round((max(seconds) - min(seconds)) / median, 3),
    }


def show(figure: dict[str, float]) -> tuple[str, str, str]:
    """Return the table cells of a figure."""
    return f"{figure['best']:.3g}", f"{figure['median']:.3g}", f"{figure['spread']:.0%}"


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a Markdown table."""
    for row in (head, ("---",) * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return what the figures depend on."""
    is_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_cuda else platform.machine(),
        "cores": count_cores(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "cuDNN": torch.backends.cudnn.version() if is_cuda else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commit": find_commit(),
    }


if __name__ == "__main__":
    main()
