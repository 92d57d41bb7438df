"""Verify one folder of shards with many options in one process: each start of CUDA takes seconds.

Usage: python scripts/cuda_verify.py SHARDS DEVICE    prints a JSON object for each run as it ends.
Every cell in every dtype, up to the level backward, the other levels, several layers, both
directions, the hidden sizes at which cuDNN changes its algorithm, and the self-test.
After an error by which the device fails for the rest of its process, or a crash, a new process does
the remaining runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from itertools import product
from typing import Any

from click.testing import CliRunner

from seqpack_cli.cli.main import main as seqpack

DEVICE_IS_LOST = 75  # exit status of a process whose device fails at every call
INTERRUPTED = 130
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


def is_lost(device: str) -> bool:
    """Return whether a GPU fails at every call of this process, whatever it is asked for."""
    from seqpack_cli.verification.device import open_device, synchronize

    try:
        synchronize(open_device(device))
    except RuntimeError:  # of torch; a device that is not there is another error
        return True
    return False


def run_from(first: int, shards: str, device: str) -> None:
    """Print a line of JSON for each run from the first one on, until the device is lost."""
    for options in list_options()[first:]:
        entry = verify(shards, device, options)
        print(json.dumps(entry), flush=True)
        print(f"{entry['status']} {' '.join(options)}", file=sys.stderr, flush=True)
        if entry["status"] == INTERRUPTED:
            sys.exit(INTERRUPTED)
        if entry["status"] and is_lost(device):
            os._exit(DEVICE_IS_LOST)  # at once: CUDA would fail again while it ends


def run_all(command: list[str], runs: list[str]) -> bool:
    """Print what `command FIRST` prints, started again after a run that ended it.

    Returns:
        Whether all runs ended with 0.
    """
    statuses: list[int] = []
    while len(statuses) < len(runs) and INTERRUPTED not in statuses:
        given = [*command, str(len(statuses))]
        with subprocess.Popen(given, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.endswith("\n"):  # else it died while it wrote
                    print(line, end="", flush=True)
                    statuses.append(json.loads(line)["status"])
        if process.returncode not in (0, DEVICE_IS_LOST, INTERRUPTED):
            options = (*runs, "after the last run")[len(statuses)]
            crash = {"options": options, "status": process.returncode}
            print(json.dumps(crash), flush=True)
            statuses.append(process.returncode)
    return not any(statuses)


def main(shards: str, device: str, first: str | None = None) -> None:
    """Print all reports; the exit status is 1 if a run failed."""
    if first is not None:
        return run_from(int(first), shards, device)
    runs = [" ".join(options) for options in list_options()]
    passed = run_all([sys.executable, __file__, shards, device], runs)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
