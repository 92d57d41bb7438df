"""How long do vocabulary counts, differences, pictures, the HTML page and unpack take?

    python benchmarks/bench_inspect.py [--tokens 100000000] [--runs 5] [--folder FOLDER]

Uses a store of random ids, its packed shards, and a second shard set with another batch size. What
reads every id is compared with the simplest way to do it in numpy or torch, over the same files:
counts with `np.bincount` of each part, the difference of two stores with `==` of their files,
unpack with torch's `unpack_sequence` of each batch. Results must be equal. Pictures and the page
read lengths and a few rows only, and have no rival. Not measured: cold disks (the files are in the
page cache), the start of the program (0.2 s).
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from machine import describe_machine
from random_store import keep_folder, make_store
from torch.nn.utils.rnn import unpack_sequence

from seqpack_cli import PackOptions, ShardDataset, TokenStore, open_shards, open_store, pack
from seqpack_cli.reporting.contents import describe
from seqpack_cli.reporting.differences import compare
from seqpack_cli.reporting.page.page import make_page
from seqpack_cli.reporting.pictures.panels import make_panels, make_title
from seqpack_cli.reporting.pictures.picture import save_picture
from seqpack_cli.reporting.vocabulary_use import describe_vocabulary_use
from seqpack_cli.shards.unpack import iter_unpacked


@click.command()
@click.option("--tokens", "num_tokens", default=100_000_000)
@click.option("--vocab-size", default=50_257)
@click.option("--mean-length", default=120)
@click.option("--runs", default=5)
@click.option("--folder", type=click.Path(path_type=Path), help="Kept; else a temporary one.")
def main(
    num_tokens: int, vocab_size: int, mean_length: int, runs: int, folder: Path | None
) -> None:
    """Print a table of medians, and one JSON document as the last line."""
    torch.set_num_threads(1)
    with keep_folder(folder) as place:
        names = [place / name for name in ("store", "copy", "shards", "others")]
        make_store(names[0], num_tokens, vocab_size, mean_length)
        shutil.copytree(names[0], names[1], dirs_exist_ok=True)
        pack(names[0], names[2], PackOptions(shuffle=True, window=4096))
        pack(names[0], names[3], PackOptions(batch_size=32))
        num_tokens = open_store(names[0]).num_tokens
        figures = measure(*names, place / "picture.svg", runs=runs)
    print(f"{num_tokens:,} tokens, median (spread) of {runs}")
    for name, figure in figures.items():
        figure["million_tokens_per_second"] = round(num_tokens / 1e6 / figure["seconds"], 1)
        beside = f"{figure['beside']:6.2f} x the rival" if "beside" in figure else ""
        print(
            f"  {name:<34} {figure['seconds']:8.3f} s ({figure['spread']:4.0%}) "
            f"{figure['million_tokens_per_second']:8.1f} M tokens/s {beside}"
        )
    print(json.dumps({"figures": figures, **describe_machine("numpy", "torch"), "runs": runs}))


def measure(
    store_path: Path, copy: Path, shards_path: Path, others: Path, picture: Path, *, runs: int
) -> dict[str, dict[str, Any]]:
    """Time each view and its rival in turn, after one warm-up."""
    store, shards = open_store(store_path), open_shards(shards_path)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "--vocabulary": (
            lambda: describe_vocabulary_use(store)["num_used_ids"],
            lambda: count(store),
        ),
        "diff, equal stores": (
            lambda: compare(open_store(store_path), open_store(copy))["identical"],
            lambda: are_equal(store_path, copy),
        ),
        "unpack": (
            lambda: sum(int(each.ids[0]) for each in iter_unpacked(open_shards(shards_path), {})),
            lambda: unpack_with_torch(shards_path),
        ),
        "diff, shards in other batches": (
            lambda: compare(open_shards(shards_path), open_shards(others))["verdict"],
            None,
        ),
        "no option": (lambda: describe(open_shards(shards_path))["bytes"], None),
        "--plot": (
            lambda: save_picture(
                picture, make_title(shards), make_panels(open_shards(shards_path))
            ),
            None,
        ),
        "--html": (
            lambda: len(make_page(shards, describe(shards), make_panels(shards))),
            None,
        ),
    }
    figures = {}
    for name, (ours, rival) in pairs.items():
        seconds, ratios = [], []
        for run in range(runs + 1):
            taken, result = timed(ours)
            if rival is not None:
                rivals, expected = timed(rival)
                assert result == expected, (name, result, expected)
                ratios += [rivals / taken] * (run > 0)
            seconds += [taken] * (run > 0)
        median = statistics.median(seconds)
        figures[name] = {"seconds": round(median, 4)}
        figures[name]["spread"] = round((max(seconds) - min(seconds)) / median, 3)
        if ratios:
            figures[name]["beside"] = round(statistics.median(ratios), 2)
    return figures


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a function took, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def count(store: TokenStore) -> int:
    """Count the ids that occur, in the simplest way."""
    counts = np.zeros(store.max_id + 1, np.int64)
    for number in range(len(store.part_offsets) - 1):
        counts += np.bincount(store.view_part(number)[0], minlength=store.max_id + 1)
    return int((counts > 0).sum())


def are_equal(first: Path, second: Path) -> bool:
    """Compare the files of two stores byte by byte."""
    return all(
        np.array_equal(np.memmap(path, np.uint8), np.memmap(second / path.name, np.uint8))
        for path in sorted(first.glob("part-*"))
    )


def unpack_with_torch(path: Path) -> int:
    """Unpack every batch with torch, put the rows in order, and add up their first ids."""
    rows: list[tuple[int, torch.Tensor]] = []
    for batch in ShardDataset(path):
        rows += zip(batch.original_indices.tolist(), unpack_sequence(batch.sequences), strict=True)
    rows.sort(key=lambda row: row[0])
    return sum(int(ids[0]) for _, ids in rows)


if __name__ == "__main__":
    main()
