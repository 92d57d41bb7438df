"""Verify one folder of shards with many options in one process: each start of CUDA takes seconds.

Usage: python scripts/cuda_verify.py SHARDS DEVICE    prints one JSON list, a report per entry.
Every cell in every dtype, up to the level backward, the other levels, several layers, both
directions, the hidden sizes at which cuDNN changes its algorithm, and the self-test.
"""

from __future__ import annotations

import json
import sys
import traceback
from itertools import product
from typing import Any

from click.testing import CliRunner

from seqpack_cli.cli.main import main as seqpack

CELLS = ("lstm", "gru", "rnn")
DTYPES = ("float32", "float64", "bfloat16", "float16")
LEVELS = ("structure", "roundtrip", "run", "forward")
SIZES = {  # the slow exact loop takes most of the time
    "cuda": ("--sample", "4"),
    "cpu": ("--sample", "1", "--max-batch-tokens", "200"),
}
HIDDEN_SIZES = {"lstm": (160, 512), "gru": (160,), "rnn": (320,)}


def list_options() -> list[list[str]]:
    """Return the options of each run."""
    runs = [["--cell", cell, "--dtype", dtype] for cell, dtype in product(CELLS, DTYPES)]
    runs += [["--level", level] for level in LEVELS]
    runs += [["--cell", cell, "--layers", "3", "--bidirectional"] for cell in CELLS]
    for cell, sizes in HIDDEN_SIZES.items():
        runs += [["--cell", cell, "--hidden-size", str(size)] for size in sizes]
    return [*runs, ["--self-test", "--level", "roundtrip"]]


def verify(shards: str, device: str, options: list[str]) -> dict[str, Any]:
    """Run one command in this process, and describe how it ended."""
    sizes = SIZES[device.partition(":")[0]]
    given = ["verify", shards, "--device", device, "--json", *sizes, *options]
    result = CliRunner().invoke(seqpack, given)
    entry: dict[str, Any] = {"options": " ".join(options), "status": result.exit_code}
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        entry["traceback"] = traceback.format_exception(result.exception)[-6:]
    try:
        return {**entry, "report": json.loads(result.stdout)}
    except ValueError:
        return {**entry, "stdout": result.stdout[-4000:], "stderr": result.stderr[-4000:]}


def main(shards: str, device: str) -> None:
    """Print all reports; the exit status is 1 if a run failed."""
    entries = []
    for options in list_options():
        entries.append(verify(shards, device, options))
        status = entries[-1]["status"]
        print(f"{status} {' '.join(options)}", file=sys.stderr, flush=True)
    print(json.dumps(entries))
    sys.exit(int(any(entry["status"] for entry in entries)))


if __name__ == "__main__":
    main(*sys.argv[1:])
