"""How much padding do pairs need, compared with fairseq, and how fast are they packed?

    python benchmarks/bench_pairs.py ENCODER DECODER --fairseq FOLDER [--news wikitext2.txt]
        [--runs 5] [--case waste] …

ENCODER and DECODER are token stores of the same pairs: `make_pairs.py`, then `seqpack tokenize` for
each field. FOLDER holds fairseq's `data_utils_fast`, built by Cython from the `.pyx` file of its
source distribution (0.12.2; the whole package needs an older numpy).

waste      the padding of both sides together, in padded batches of at most 4,096 and 16,384 tokens
           on the larger side, fairseq's `--max-tokens`. Rivals: fairseq's `ordered_indices` (by
           target, then stably by source) with `batch_by_size` and a multiple of 8 rows. Ours:
           `--order length`.
           Pairs: the first 200,000, all, 200,000 with at least 10 tokens on the encoder's side; and
           lengths that are drawn, not real: the words of WikiText's sentences, and for the other
           side 1.05 times as many, sigma 0.18, and one word more or less.
speed      whole commands, `pack ENCODER --decoder DECODER` and `pack` of each store, in turn. The
           ratio is (ENCODER + DECODER) / pairs of the same run: 1 is as fast as both one by one.

Each waste is a ratio of cells, not of time. Not measured: a model; cold disks.
"""

from __future__ import annotations

import json
import re
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
import numpy as np
from machine import describe_machine

from seqpack_cli import PackOptions, open_store
from seqpack_cli.batching.order import Rows
from seqpack_cli.batching.plan import plan_batches
from seqpack_cli.batching.selection import SourceCounts, count_lengths

BUDGETS = (4096, 16_384)
MULTIPLE = 8  # fairseq's --required-batch-size-multiple
LONGEST = 1024  # fairseq's --max-source-positions and --max-target-positions
MIN_LONG = 10  # tokens of the encoder's side of a longer text
FEW, MANY = 200_000, 1_000_000
Sides = tuple[np.ndarray, np.ndarray]  # lengths, int32[N]


class Lengths:
    """The lengths of a store's sequences, in one part."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = lengths
        self.part_offsets = np.array([0, len(lengths)])

    def part_lengths(self, _number: int) -> np.ndarray:
        """Return the lengths of the only part."""
        return self.lengths


@click.command()
@click.argument("encoder", type=click.Path(exists=True, path_type=Path))
@click.argument("decoder", type=click.Path(exists=True, path_type=Path))
@click.option("--fairseq", type=click.Path(exists=True, path_type=Path))
@click.option("--news", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=5)
@click.option("--case", "cases", multiple=True, type=click.Choice(["waste", "speed"]))
def main(
    encoder: Path,
    decoder: Path,
    fairseq: Path | None,
    news: Path | None,
    runs: int,
    cases: tuple[str, ...],
) -> None:
    """Print a line for each measurement, and one JSON document as the last line."""
    figures: dict[str, Any] = {}
    if "waste" in (cases or "waste"):
        if fairseq is None:
            raise click.UsageError("--case waste needs --fairseq")
        sys.path.insert(0, str(fairseq))
        for name, sides in list_sides(encoder, decoder, news):
            for budget in BUDGETS:
                figures[f"{name}, {budget}"] = measure_waste(name, sides, budget)
    if "speed" in (cases or "speed"):
        for layout in ("packed", "padded"):
            figures[layout] = measure_speed(encoder, decoder, layout, runs)
    print(json.dumps({"figures": figures, **describe_machine("numpy"), "runs": runs}))


def list_sides(encoder: Path, decoder: Path, news: Path | None) -> Iterator[tuple[str, Sides]]:
    """Yield the lengths of both sides of each set of pairs."""
    lengths = np.stack([open_store(store).lengths for store in (encoder, decoder)])
    lengths = lengths[:, (lengths.max(0) <= LONGEST) & (lengths.min(0) > 0)]
    longer = lengths[:, lengths[0] >= MIN_LONG]
    sets = {"first": lengths[:, :FEW], "all": lengths, "longer": longer[:, :FEW]}
    if news is not None:
        sets |= {f"drawn {size:,}": draw_sides(news, size) for size in (FEW, MANY)}
    for name, sides in sets.items():
        print(f"{name}: {sides.shape[1]:,} pairs, means {sides.mean(1).round(1).tolist()}")
        yield name, (sides[0], sides[1])


def draw_sides(news: Path, num_pairs: int) -> np.ndarray:
    """Draw the lengths of sentences, and lengths in proportion to them; int32[2, N]."""
    lines = [line.strip() for line in news.read_text().splitlines()]
    texts = [line for line in lines if line and not line.startswith("=")]
    sentences = [part for text in texts for part in re.split(r"(?<= [.?!]) ", text)]
    lengths = np.array([len(sentence.split()) for sentence in sentences])
    generator = np.random.default_rng(0)
    encoder = generator.choice(lengths[(lengths > 0) & (lengths <= 250)], num_pairs)
    ratios = generator.normal(1.05, 0.18, num_pairs)
    decoder = np.rint(encoder * ratios + generator.normal(0, 1, num_pairs))
    return np.stack([encoder, np.clip(decoder, 1, 250)]).astype(np.int32)


def measure_waste(name: str, sides: Sides, budget: int) -> dict[str, Any]:
    """Batch the pairs in all ways; print and return padding, batches and distinct shapes."""
    found = {
        "fairseq": batch_by_size(sides, budget),
        "--order length": plan(sides, PackOptions("padded", max_tokens=budget)),
    }
    for way, figures in found.items():
        print(f"  {name}, {budget}, {way}: {figures}", flush=True)
    return found


def plan(sides: Sides, options: PackOptions) -> dict[str, Any]:
    """Plan batches as pack does."""
    options = options.resolve(pairs=True)
    counts = [SourceCounts(count_lengths([side])) for side in sides]
    pairs = Rows(np.arange(len(sides[1])), sides[1])
    started = time.perf_counter()
    found = plan_batches(Lengths(sides[0]), options, counts, pairs=pairs)
    seconds, table = time.perf_counter() - started, found.table
    repeated = [np.repeat(side.widths, table.counts) for side in table.sides]
    figures = summarize(np.repeat(table.num_rows, table.counts), repeated, sides)
    return {**figures, "keys": len(found.bucket_keys or []), "seconds": round(seconds, 2)}


def batch_by_size(sides: Sides, budget: int) -> dict[str, Any]:
    """Batch pairs with fairseq's own function, in the order that its datasets return."""
    from data_utils_fast import batch_by_size_vec

    order = np.lexsort(sides[::-1])
    widths = [side[order].astype(np.int64) for side in sides]
    batches = batch_by_size_vec(np.arange(len(order)), np.maximum(*widths), budget, -1, MULTIPLE)
    starts = np.array([batch[0] for batch in batches])
    num_rows = np.diff([*starts, len(order)])
    return summarize(num_rows, [np.maximum.reduceat(side, starts) for side in widths], sides)


def summarize(num_rows: np.ndarray, widths: list[np.ndarray], sides: Sides) -> dict[str, Any]:
    """Return padding ratio, batches and shapes, of the rows and widths of each batch."""
    assert num_rows.sum() == len(sides[0])
    num_tokens = sum(int(side.sum(dtype=np.int64)) for side in sides)
    num_cells = sum(int((num_rows * width).sum()) for width in widths)
    shapes = np.unique(np.stack([num_rows, *widths]), axis=1)
    padding = round(1 - num_tokens / num_cells, 4)
    return {"padding": padding, "batches": len(num_rows), "shapes": shapes.shape[1]}


def measure_speed(encoder: Path, decoder: Path, layout: str, runs: int) -> dict[str, Any]:
    """Time the commands in turn; print and return the seconds of each and the ratios."""
    times: dict[str, list[float]] = {"encoder": [], "decoder": [], "pairs": []}
    given = {"encoder": [encoder], "decoder": [decoder], "pairs": [encoder, "--decoder", decoder]}
    with tempfile.TemporaryDirectory(dir=encoder.parent) as folder:
        for run in range(runs + 1):  # run 0 warms up
            for name, places in given.items():
                output = Path(folder) / name
                seconds = time_pack([*map(str, places), "-o", str(output), "--layout", layout])
                shutil.rmtree(output)
                if run > 0:
                    times[name].append(seconds)
    ratios = [
        (one + other) / both
        for one, other, both in zip(times["encoder"], times["decoder"], times["pairs"], strict=True)
    ]
    median, least = round(statistics.median(ratios), 2), round(min(ratios), 2)
    seconds = {name: round(statistics.median(each), 3) for name, each in times.items()}
    print(f"  {layout}: {seconds} s, of both singly {median} (lowest {least})", flush=True)
    return {"seconds": seconds, "of_both_singly": median, "lowest": least}


def time_pack(arguments: list[str]) -> float:
    """Return the seconds of a pack command."""
    command = [sys.executable, "-m", "seqpack_cli", "pack", "--quiet", *arguments]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
