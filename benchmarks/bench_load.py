"""How fast does a training loop get its batches, and how much memory does the loader take?

    python benchmarks/bench_load.py [--case batches] [--streaming-python /path/to/python] …

Makes a token store of random ids with log-normal lengths of mean 120, and packed shards of batches
of 64, shuffled and sorted within windows of 4,096 as for training (`--window 0`: random order, not
sorted). Both sides return int64 PackedSequences, which are compared. Cases:

batches    in process and with two workers: ShardDataset in a plain loop, in DataLoader(batch_size=
           None), in the same one tracked by an EpochSampler, and several batches per fetch
           (batch_size=16, collate_fn=list). The rival is DataLoader(rows, batch_size=64) with
           `pack_sequence(enforce_sorted=False)` as collate function and its rows in memory as int64
           tensors. An empty DataLoader, which yields numbers instead of batches, shows the cost of
           torch's loader itself.
layouts    packed, padded, varlen and streams of about as many tokens a batch, and the share of one
           of four ranks of streams. Padded is what streams are compared with.
store      batches made from the token store while training (StoreBatches), one and 64 a fetch, and
           the same rival.
streaming  MosaicML streaming with the same rows and the same collate, in the environment of
           --streaming-python.
device     batches on --device, which computes an LSTM with each: already there, sent
           by .to(device), and sent from pinned memory (pin_memory=True, non_blocking=True), in
           process and with two workers. What pinning hides is the time of `.to(device)` that is
           left of it. On a CPU there is nothing to pin: the paths are run.
opening    1,000 shards: open the dataset, read its first item, map and check every shard.
memory     an epoch of 1 billion tokens, 2 GB, in random order through 4 workers: how their memory
           grows after the first batch. PSS counts a page shared by n processes as 1/n in each; USS
           counts only pages that are not shared.

Everything is in the page cache. Not measured: cold disks.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence
from torch.utils.data import BatchSampler, DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from machine import describe_machine
from random_store import keep_folder, make_store

from seqpack_cli import (
    EpochSampler,
    PackOptions,
    ShardDataset,
    StoreBatches,
    StoreDataset,
    open_shards,
    pack,
)
from seqpack_cli.verification.device import synchronize

CASES = ("batches", "layouts", "store", "streaming", "device", "opening", "memory")
BATCH_SIZE = 64
MEAN_LENGTH = 120
GROUP = 16  # batches per fetch
VOCAB_SIZE = 32_000
HIDDEN_SIZE = 256  # of the case device


@click.command()
@click.option("--tokens", default=20_000_000, show_default=True)
@click.option("--memory-tokens", default=1_000_000_000, show_default=True)
@click.option("--window", default=4096, show_default=True, help="0 takes rows as they come.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="For the case device.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps what is made, and takes it.")
@click.option("--streaming-python", help="A Python that has mosaicml-streaming and torch.")
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES))
@click.option("--watch", type=click.Path(path_type=Path), hidden=True)
def main(cases: tuple[str, ...], folder: Path | None, watch: Path | None, **options: Any) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    torch.set_num_threads(1)
    if watch is not None:
        print(json.dumps(watch_memory(watch)))
        return
    figures: dict[str, Any] = {}
    with keep_folder(folder) as kept:
        for case in cases or CASES:
            print(f"\n{case}")
            figures[case] = MEASURE[case](kept, options)
    print(json.dumps({"figures": figures, **describe_machine("numpy", "torch"), **options}))


def find_shards(folder: Path, options: dict[str, Any], **packing: Any) -> Path:
    """Return the folder of the shards; make store and shards if they are missing."""
    num_tokens, window = options["tokens"], options["window"]
    store = folder / f"store-{num_tokens}"
    make_store(store, num_tokens, VOCAB_SIZE, MEAN_LENGTH)
    order = {"window": window} if window else {"order": "none"}
    packing = {"batch_size": BATCH_SIZE, "shuffle": True, **order, **packing}
    shards = folder / "-".join(["shards", str(num_tokens), *map(str, packing.values())])
    pack(store, shards, PackOptions(**packing))
    return shards


def measure_batches(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time an epoch of each way to load, in turn."""
    path = find_shards(folder, options)
    dataset, rows = ShardDataset(path), read_rows(path)
    check_equal(dataset, rows)
    num_batches = len(dataset)
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "seqpack, plain loop": lambda: (dataset[index] for index in range(num_batches)),
        "seqpack, DataLoader": lambda: DataLoader(dataset, batch_size=None),
        "seqpack, DataLoader, tracked": lambda: track(dataset),
        "seqpack, DataLoader, 16 batches a fetch": lambda: in_groups(dataset, 0),
        "torch pack_sequence": lambda: rival(rows, 0),
        "an empty DataLoader": lambda: DataLoader(range(num_batches), batch_size=None),
        "seqpack, 2 workers": lambda: DataLoader(dataset, batch_size=None, num_workers=2),
        "seqpack, 2 workers, 16 batches a fetch": lambda: in_groups(dataset, 2),
        "torch pack_sequence, 2 workers": lambda: rival(rows, 2),
    }
    num_tokens = sum(map(len, rows))
    figures = time_in_turn(ways, num_tokens, num_batches, options["repeats"])
    for name in figures:
        beside = "torch pack_sequence" + ", 2 workers" * ("2 workers" in name)
        if name.startswith("seqpack"):
            print(f"  {name:<42} {compare(figures, name, beside):.1f} x {beside}")
    return figures


def measure_layouts(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time an epoch of each layout, in turn, and of a quarter of the streams."""
    num_tokens = BATCH_SIZE * MEAN_LENGTH
    varlen = {"layout": "varlen", "max_tokens": num_tokens, "batch_size": None}
    streams = {"layout": "streams", "max_tokens": MEAN_LENGTH}
    packing = {
        "packed": {},
        "padded": {"layout": "padded"},
        "varlen": {**varlen, "window": None},
        "streams": {**streams, "window": None},
    }
    shards = {name: find_shards(folder, options, **given) for name, given in packing.items()}
    ways: dict[str, Callable[[], Iterable[Any]]] = {}
    for labels in (None, "next"):
        for name, path in shards.items():
            dataset = ShardDataset(path, labels=labels)
            ending = "" if labels is None else ", with labels"
            ways[name + ending] = lambda it=dataset: (it[index] for index in range(len(it)))
            if name == "streams":
                sampler = EpochSampler(dataset, shuffle=False, rank=1, world_size=4)
                ways[f"streams of a rank of four{ending}"] = lambda it=dataset, keys=sampler: (
                    it[key] for key in keys
                )
    (entry,) = open_shards(shards["streams"]).manifest["stores"]
    num_batches = len(ShardDataset(shards["streams"]))
    figures = time_in_turn(ways, entry["num_tokens"], num_batches, options["repeats"])
    for ending in ("", ", with labels"):
        ratio = compare(figures, f"streams{ending}", f"padded{ending}")
        print(f"  streams{ending:<35} {ratio:.2f} x padded{ending}")
    return figures


def measure_store(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time batches made from the token store while training, and the rival."""
    rows = read_rows(find_shards(folder, options))
    dataset = StoreDataset(folder / f"store-{options['tokens']}")
    order = {"window": options["window"]} if options["window"] else {"order": "none"}
    batches = StoreBatches(dataset, PackOptions(batch_size=BATCH_SIZE, **order))
    collate = batches.make_collate()

    def load(num_workers: int, per_fetch: int | None = None) -> Any:
        sampler = EpochSampler(batches)
        fetches = sampler if per_fetch is None else BatchSampler(sampler, per_fetch, False)
        loader = DataLoader(
            dataset, batch_sampler=fetches, collate_fn=collate, num_workers=num_workers
        )
        return sampler.track(loader)

    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "seqpack, planning": lambda: [None] * len(load(0)),
        "seqpack, batches of the store": lambda: load(0),
        "seqpack, batches of the store, 64 a fetch": lambda: load(0, 64),
        "torch pack_sequence": lambda: rival(rows, 0),
        "seqpack, batches of the store, 2 workers": lambda: load(2),
        "torch pack_sequence, 2 workers": lambda: rival(rows, 2),
    }
    num_batches = len(load(0))
    return time_in_turn(ways, sum(map(len, rows)), num_batches, options["repeats"])


def measure_streaming(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time MosaicML streaming, in its own environment."""
    if not options["streaming_python"]:
        print("  skipped: no --streaming-python")
        return {}
    rows = read_rows(find_shards(folder, options))[: 40 * 1024]
    lengths = np.array([len(row) for row in rows])
    np.savez(folder / "rows.npz", ids=torch.cat(rows).numpy(), lengths=lengths)
    arguments = [options["streaming_python"], "-c", STREAMING, str(folder)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for name, figure in figures.items():
        print(f"  {name:<42} {figure:8.2f} M tokens/s")
    return figures


def measure_device(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time an epoch of each way to send batches to a device that computes meanwhile."""
    device = torch.device(options["device"])
    is_cuda = device.type == "cuda"
    dataset = ShardDataset(find_shards(folder, options))
    there = [batch.to(device) for batch in dataset]
    embedding = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE, device=device)
    lstm = nn.LSTM(HIDDEN_SIZE, HIDDEN_SIZE, device=device)

    def compute(batches: Iterable[Any]) -> Iterable[Any]:
        with torch.no_grad():
            for batch in batches:
                rows = batch.sequences
                yield lstm(PackedSequence(embedding(rows.data), rows.batch_sizes))
        synchronize(device)

    def send(is_pinned: bool, num_workers: int = 0) -> Iterable[Any]:
        loader = DataLoader(
            dataset, batch_size=None, pin_memory=is_pinned and is_cuda, num_workers=num_workers
        )
        yield from (batch.to(device, non_blocking=is_pinned) for batch in loader)
        synchronize(device)

    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "send": lambda: send(False),
        "send, pinned": lambda: send(True),
        "compute": lambda: compute(there),
        "send and compute": lambda: compute(send(False)),
        "send and compute, pinned": lambda: compute(send(True)),
        "send and compute, 2 workers": lambda: compute(send(False, 2)),
        "send and compute, pinned, 2 workers": lambda: compute(send(True, 2)),
    }
    num_tokens = sum(len(batch.sequences.data) for batch in there)
    figures = time_in_turn(ways, num_tokens, len(there), options["repeats"])
    for name in ("send and compute, pinned", "send and compute, pinned, 2 workers"):
        print(f"  {name:<42} {compare(figures, name, 'compute'):.2f} x compute")
    return figures


STREAMING = f"""
import json, sys, time
import numpy as np, torch
from streaming import MDSWriter, StreamingDataset
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import BatchSampler, DataLoader

torch.set_num_threads(1)
held = np.load(sys.argv[1] + "/rows.npz")
rows = np.split(held["ids"].astype(np.uint16), np.cumsum(held["lengths"])[:-1])
folder = sys.argv[1] + "/mds"
import shutil; shutil.rmtree(folder, ignore_errors=True)
with MDSWriter(out=folder, columns={{"ids": "ndarray:uint16"}}) as writer:
    for row in rows:
        writer.write({{"ids": row}})

def collate(samples):
    rows = [torch.from_numpy(sample["ids"].astype(np.int64)) for sample in samples]
    return pack_sequence(rows, enforce_sorted=False)

figures = {{}}
for num_workers in (0, 2):
    dataset = StreamingDataset(local=folder, shuffle=False, batch_size={BATCH_SIZE})
    loader = DataLoader(
        dataset, batch_size={BATCH_SIZE}, collate_fn=collate, num_workers=num_workers
    )
    best = 0
    for _ in range(2):
        started = time.perf_counter()
        num_tokens = sum(len(batch.data) for batch in loader)
        best = max(best, num_tokens / (time.perf_counter() - started) / 1e6)
    assert num_tokens == len(held["ids"]), (num_tokens, len(held["ids"]))
    figures[f"streaming, {{num_workers}} workers"] = round(best, 3)
print(json.dumps(figures))
"""


def measure_opening(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Time the opening of 1,000 shards."""
    size = max(4096, options["tokens"] * 5 // 2 // 1000)
    path = find_shards(folder, options, shard_bytes=size)
    num_shards = open_shards(path).num_shards
    seconds: dict[str, list[float]] = {}
    for _ in range(options["repeats"]):
        started = time.perf_counter()
        dataset = ShardDataset(path)
        opened = time.perf_counter()
        dataset[len(dataset) // 2]
        first = time.perf_counter()
        shards = open_shards(path)
        starts = [int(start) for start in shards.batch_offsets[:-1]]
        between = time.perf_counter()
        for start in starts:
            shards.take(start)
        mapped = time.perf_counter() - between
        for name, value in (
            ("ShardDataset", opened - started),
            ("its first item", first - opened),
            ("a batch of every shard", mapped),
        ):
            seconds.setdefault(name, []).append(value)
    figures: dict[str, Any] = {"shards": num_shards}
    for name, values in seconds.items():
        figures[name] = statistics.median(values)
        print(f"  {num_shards:,} shards: {name:<28} {figures[name]:.4f} s")
    return figures


def measure_memory(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Measure the memory of four workers during an epoch, in a new process.

    Workers are forked: they would inherit the memory of this process.
    """
    path = find_shards(folder, {**options, "tokens": options["memory_tokens"]})
    arguments = [sys.executable, __file__, "--watch", str(path)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    for name in ("PSS", "USS", "RSS"):
        first, most = figures[name]["first"], figures[name]["most"]
        print(f"  {name}: 4 workers together {first / 1e6:.0f} MB, at most {most / 1e6:.0f} MB")
    return figures


def watch_memory(path: Path) -> dict[str, Any]:
    """Load an epoch in random order, and sample the workers' memory."""
    num_bytes = sum(entry["bytes"] for entry in open_shards(path).manifest["shards"])
    dataset = ShardDataset(path)
    sampler = EpochSampler(dataset)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=4)
    total, every = len(sampler), max(1, len(sampler) // 200)
    seen: list[dict[str, int]] = []
    num_tokens = 0
    for number, batch in enumerate(loader):
        num_tokens += len(batch.sequences.data)
        if number % (20 if number < 1000 else every) == 0:
            workers = [child.pid for child in multiprocessing.active_children()]
            if len(workers) == 4:
                seen.append(sum_memory(workers))
    figures: dict[str, Any] = {"bytes": num_bytes, "tokens": num_tokens, "batches": total}
    for name in seen[0]:
        first, most = seen[0][name], max(memory[name] for memory in seen)
        figures[name] = {"first": first, "most": most, "growth": most - first}
    return figures


def sum_memory(pids: list[int | None]) -> dict[str, int]:
    """Return the sums of the processes' memory in bytes."""
    totals = {"PSS": 0, "USS": 0, "RSS": 0}
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        found = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
        totals["PSS"] += found["Pss:"]
        totals["USS"] += found["Private_Clean:"] + found["Private_Dirty:"]
        totals["RSS"] += found["Rss:"]
    return totals


MEASURE = {
    "batches": measure_batches,
    "layouts": measure_layouts,
    "store": measure_store,
    "streaming": measure_streaming,
    "device": measure_device,
    "opening": measure_opening,
    "memory": measure_memory,
}


def read_rows(path: Path) -> list[torch.Tensor]:
    """Return the rows of all batches in memory, int64, batch after batch."""
    return [torch.from_numpy(row.astype(np.int64)) for it in open_shards(path) for row in it.rows()]


def track(dataset: ShardDataset) -> Iterable[Any]:
    """Return the loop of the documentation, in the order of the shards."""
    sampler = EpochSampler(dataset, shuffle=False)
    return sampler.track(DataLoader(dataset, batch_size=None, sampler=sampler))


def check_equal(dataset: ShardDataset, rows: list[torch.Tensor]) -> None:
    """Raise unless the first batches hold the same rows."""
    for index, theirs in zip(range(20), rival(rows, 0), strict=False):
        ours = unpack_sequence(dataset[index].sequences)
        assert all(map(torch.equal, ours, unpack_sequence(theirs)))


def rival(rows: list[torch.Tensor], num_workers: int) -> DataLoader[PackedSequence]:
    """Load batches as torch's users do for an LSTM."""
    return DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=BATCH_SIZE,
        collate_fn=collate,
        num_workers=num_workers,
    )


def collate(rows: list[torch.Tensor]) -> PackedSequence:
    """Sort and pack."""
    return pack_sequence(rows, enforce_sorted=False)


def in_groups(dataset: ShardDataset, num_workers: int) -> Iterable[Any]:
    """Load several batches per fetch, and return them one by one."""
    loader = DataLoader(dataset, batch_size=GROUP, collate_fn=list, num_workers=num_workers)
    return chain.from_iterable(loader)


def time_in_turn(
    ways: dict[str, Callable[[], Iterable[Any]]], num_tokens: int, num_batches: int, repeats: int
) -> dict[str, Any]:
    """Time each way `repeats` times after a warm-up round; print medians."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            for _ in way():
                pass
            if number > 0:
                seconds[name].append(time.perf_counter() - started)
    figures = {}
    for name, values in seconds.items():
        median = statistics.median(values)
        figures[name] = {
            "million_tokens_per_second": round(num_tokens / median / 1e6, 2),
            "microseconds_per_batch": round(median / num_batches * 1e6, 1),
            "spread": round((max(values) - min(values)) / median, 3),
            "seconds": [round(value, 4) for value in values],
        }
        print(
            f"  {name:<42} {num_tokens / median / 1e6:8.1f} M tokens/s  "
            f"{median / num_batches * 1e6:7.0f} us a batch  ({figures[name]['spread']:.0%})"
        )
    return figures


def compare(figures: dict[str, Any], name: str, other: str) -> float:
    """Return the median of the ratios of each round."""
    pairs = zip(figures[other]["seconds"], figures[name]["seconds"], strict=True)
    return statistics.median(theirs / ours for theirs, ours in pairs)


if __name__ == "__main__":
    main()
