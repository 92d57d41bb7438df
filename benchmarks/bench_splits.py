"""What does `pack --split` cost, beside the same pack without it?

    python benchmarks/bench_splits.py [--documents 1e8] [--tokens 2e8] [--runs 5] [--case plan] …

Token stores of random ids and document hashes are made in a temporary folder, or kept in --folder.
Cases, each measured in pairs within one run, with and without
`--split train=0.98,validation=0.01,test=0.01`:

plan       documents of about 4 tokens, planned in length order: all splits counted, then each
           selected, planned and cut into shards, in a process of its own; seconds, and peak memory
           as bytes a document more. Limit: 30 s and 24 bytes more for 1e8 documents.
commands   `seqpack pack` of documents of about 200 tokens on both cores, with start-up, BLAKE3 and
           fsync. The limit is 1.1 of the command without --split; the tokens must be as many.

The stores are in the page cache. Not measured: object stores, other layouts and orders.
"""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from machine import describe_machine
from random_store import keep_folder, make_store

from seqpack_cli import PackOptions, open_store
from seqpack_cli.shards.pack import describe_splits
from seqpack_cli.shards.pack_plan import count_bytes, cut_shards, plan_store
from seqpack_cli.shards.selection import Selection, make_splitter

SPLIT = "train=0.98,validation=0.01,test=0.01"
SHORT, LONG = 4, 200  # mean tokens of a document
VOCAB_SIZE = 1000
CASES = ("plan", "commands")
WITHOUT, WITH = "pack", "pack --split"


@click.command()
@click.option("--documents", default="1e8", help="Number of documents in the case plan.")
@click.option("--tokens", default="2e8", help="Number of tokens in the case commands.")
@click.option("--runs", default=5)
@click.option("--folder", type=click.Path(path_type=Path))
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES))
@click.option("--alone", nargs=2, hidden=True)
def main(
    documents: str,
    tokens: str,
    runs: int,
    folder: Path | None,
    cases: tuple[str, ...],
    alone: tuple[str, str] | None,
) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    if alone is not None:
        print(json.dumps(plan_alone(Path(alone[0]), alone[1])))
        return
    figures: dict[str, Any] = {}
    with keep_folder(folder) as place:
        if "plan" in (cases or CASES):
            store = place / f"{documents} documents"
            make_store(store, int(float(documents)) * SHORT, VOCAB_SIZE, SHORT)
            figures["plan"] = measure_plan(store, runs)
        if "commands" in (cases or CASES):
            store = place / f"{tokens} tokens"
            make_store(store, int(float(tokens)), VOCAB_SIZE, LONG)
            figures["commands"] = measure_commands(store, place / "shards", runs)
    print(json.dumps({"figures": figures, **describe_machine("numpy"), "runs": runs}))


def measure_plan(store: Path, runs: int) -> dict[str, Any]:
    """Time planning with and without splits, in turn, each in its own process."""
    found: dict[str, list[dict[str, Any]]] = {WITHOUT: [], WITH: []}
    for run in range(runs + 1):  # run 0 warms up
        for name, measured in found.items():
            command = [sys.executable, __file__, "--alone", store, name]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            if run > 0:
                measured.append(json.loads(output))
    num_documents = open_store(store, check_indices=False).num_documents
    figures: dict[str, Any] = {"documents": num_documents}
    for name, measured in found.items():
        assert all(each["tokens"] == found[WITHOUT][0]["tokens"] for each in measured)
        figures[name] = summarize([each["seconds"] for each in measured])
        figures[name]["peak_bytes"] = statistics.median(each["peak_bytes"] for each in measured)
    more = figures[WITH]["peak_bytes"] - figures[WITHOUT]["peak_bytes"]
    figures["more_bytes_per_document"] = round(more / num_documents, 2)
    print(f"  plan: {figures}", flush=True)
    return figures


def plan_alone(path: Path, name: str) -> dict[str, Any]:
    """Plan the batches and shards of a store, or of each of its splits."""
    store, started = open_store(path, check_indices=False), time.perf_counter()
    before = read_memory("VmRSS")
    choices, find = [PackOptions()], None
    if name == WITH:
        splits = PackOptions(split=SPLIT)
        find = functools.cache(make_splitter(store, splits))  # as pack does
        describe_splits(store, splits, find)
        choices = [replace(splits, split_name=each) for each in splits.split_shares]
    num_tokens = 0
    for choice in choices:
        options = choice.resolve()
        source = Selection(store, options, find_split=find)
        plan = plan_store(source, options)
        sizes = count_bytes(plan.table, options, [store])
        plan.cut(cut_shards(plan.table, sizes, options.shard_bytes))
        num_tokens += plan.table.add_up(plan.table.num_tokens)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_bytes": read_memory("VmHWM") - before, "tokens": num_tokens}


def read_memory(field: str) -> int:
    """Read the memory of this process, now (VmRSS) or at most (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def measure_commands(store: Path, output: Path, runs: int) -> dict[str, Any]:
    """Time whole commands with and without splits, in turn."""
    times: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    num_tokens = []
    for run in range(runs + 1):  # run 0 warms up
        for name, seconds in times.items():
            command = [sys.executable, "-m", "seqpack_cli", "pack", store, "-o", output, "--json"]
            started = time.perf_counter()
            split = ["--split", SPLIT] if name == WITH else []
            made = subprocess.run([*command, *split], check=True, capture_output=True).stdout
            if run > 0:
                seconds.append(time.perf_counter() - started)
            num_tokens.append(count_tokens(json.loads(made)))
            shutil.rmtree(output)
    assert len(set(num_tokens)) == 1
    figures: dict[str, Any] = {name: summarize(seconds) for name, seconds in times.items()}
    ratios = [a / b for a, b in zip(times[WITH], times[WITHOUT], strict=True)]
    figures["ratio"] = summarize(ratios)
    figures["tokens"] = num_tokens[0]
    print(f"  commands: {figures}", flush=True)
    return figures


def count_tokens(manifest: dict[str, Any]) -> int:
    """Count the packed tokens of shards or splits."""
    if "splits" in manifest:
        return sum(entry["num_tokens"] for entry in manifest["splits"])
    return int(manifest["ledger"]["num_tokens"])


def summarize(values: list[float]) -> dict[str, float]:
    """Return the median and the spread."""
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


if __name__ == "__main__":
    main()
