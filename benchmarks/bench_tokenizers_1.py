"""How fast is `seqpack tokenize` with `tokenizers` 1.0, compared with the installed version?

    pip install --target SITE --no-deps tokenizers==1.0.0rc3
    python benchmarks/bench_tokenizers_1.py TEXTS.jsonl SITE TOKENIZER.json … [--runs 3]

Whole commands with one worker, in turn: 0.x, 1.0, and fastokens where it supports the tokenizer.
All stores must have the same bytes. The ratios are of CPU seconds, start-up included, because the
machine is shared. Not measured: several workers, whose processes do not share anything.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from blake3 import blake3
from machine import describe_machine

OLD, NEW, FAST = "tokenizers 0.x", "tokenizers 1.0", "fastokens"


@click.command()
@click.argument("texts", type=click.Path(exists=True, path_type=Path))
@click.argument("site", type=click.Path(exists=True, path_type=Path))
@click.argument("tokenizers", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=3)
def main(texts: Path, site: Path, tokenizers: tuple[Path, ...], runs: int) -> None:
    """Print a line for each tokenizer, and one JSON document as the last line."""
    figures = {}
    for tokenizer in tokenizers:
        figures[tokenizer.name] = measure(texts, site, tokenizer, runs)
        print(tokenizer.name, figures[tokenizer.name], flush=True)
    machine = describe_machine("tokenizers", "fastokens", "orjson", "numpy")
    print(json.dumps({"figures": figures, **machine, "runs": runs}))


def measure(texts: Path, site: Path, tokenizer: Path, runs: int) -> dict[str, object]:
    """Tokenize in turn; return the medians, and the median, smallest and largest ratio."""
    paths = {OLD: [], NEW: [str(site)], FAST: []}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    made = set()
    for _ in range(runs):
        for name, first in paths.items():
            encoder = "fastokens" if name == FAST else "tokenizers"
            found = run(texts, tokenizer, encoder, first)
            if found is not None:
                seconds[name].append(found[0])
                made.add(found[1])
    assert len(made) == 1, f"{tokenizer}: the stores differ"
    megabytes = texts.stat().st_size / 1e6
    found_figures: dict[str, object] = {
        name: {"cpu_seconds": round(statistics.median(values), 2)}
        | {"megabytes_per_second": round(megabytes / statistics.median(values), 2)}
        for name, values in seconds.items()
        if values
    }
    for name in (NEW, FAST):
        ratios = [old / new for old, new in zip(seconds[OLD], seconds[name], strict=False)]
        if ratios:
            ratios = [statistics.median(ratios), min(ratios), max(ratios)]
            found_figures[f"{name} is times as fast"] = [round(ratio, 2) for ratio in ratios]
    return found_figures


def run(texts: Path, tokenizer: Path, encoder: str, first: list[str]) -> tuple[float, str] | None:
    """Return the CPU seconds of a command and a checksum of its store; None if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        command = [sys.executable, "-m", "seqpack_cli", "tokenize", str(texts), "-o", str(store)]
        options = ["--tokenizer", str(tokenizer), "--encoder", encoder, "--num-workers", "1", "-q"]
        path = os.pathsep.join([*first, str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [*command, *options], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        message = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if encoder == "fastokens" and "does not support" in message:
            return None
        assert status == 0, message
        digest = blake3()
        for file in sorted(store.iterdir()):
            if file.name != "run.json":
                digest.update(file.read_bytes())
        return usage.ru_utime + usage.ru_stime, digest.hexdigest()


if __name__ == "__main__":
    main()
