"""Run one command in a process group of its own within a time limit, and describe what it did.

At its limit a command gets Ctrl-C, by which pytest still prints its summary, and is killed five
seconds later. What it started ends with it, also when this script is stopped.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIRST = "environment"  # the part that runs whatever is chosen
LAST_LINES = 1000
SECONDS_TO_STOP = 5
running: set[int] = set()  # process groups
stopping: list[int] = []  # the signal that ends this script


@dataclass(frozen=True)
class Command:
    """Arguments for this Python, and the most seconds it may take, else its part's."""

    name: str
    arguments: tuple[str, ...]
    seconds: float | None = None


@dataclass(frozen=True)
class Part:
    """Commands that run one after another, then commands that run several at a time."""

    seconds: float
    commands: tuple[Command, ...] = ()
    together: tuple[Command, ...] = ()
    is_chosen: bool = True  # runs unless parts are named


def run_command(command: Command, end: float) -> dict[str, Any]:
    """Run a command until its own limit or `end`, and describe what it did."""
    limit = min(command.seconds or end, end - time.monotonic())
    arguments = [sys.executable, *command.arguments]
    entry = {"name": command.name, "command": shlex.join(arguments), "limit": round(limit, 1)}
    if limit < 1:
        return {**entry, "status": None, "seconds": 0.0, "timed_out": False}
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status, timed_out = wait(arguments, limit, out, err)
        stdout, stderr = read_text(out), read_text(err)
    return {
        **entry,
        "status": status,
        "seconds": round(time.monotonic() - started, 2),
        "timed_out": timed_out,
        "json": find_json(stdout),
        "stdout": last_lines(stdout),
        "stderr": last_lines(stderr),
    }


def wait(arguments: list[str], limit: float, out: Any, err: Any) -> tuple[int, bool]:
    """Run a process group; return its exit status and whether it was stopped at the limit."""
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
    )
    timed_out = False
    running.add(process.pid)
    if stopping:  # since the check before it was started
        kill_group(process.pid)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
    finally:  # what it started ends with it
        kill_group(process.pid)
        running.discard(process.pid)
    return process.wait(), timed_out


def kill_group(pid: int) -> None:
    """Kill what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def leave(number: int, _frame: object) -> None:
    """Kill all that runs, and start nothing any more: on Ctrl-C, or a signal to this script."""
    stopping.append(number)
    for pid in list(running):
        kill_group(pid)


def read_text(file: Any) -> str:
    """Return what a process wrote."""
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def last_lines(text: str) -> list[str]:
    """Return the last lines of an output that is not JSON."""
    return [line[:2000] for line in text.splitlines()[-LAST_LINES:]]


def find_json(text: str) -> Any:
    """Return the JSON document that an output is, else a list of its lines, else the last line."""
    lines = text.strip().splitlines()
    for candidate in (text, f"[{','.join(lines)}]", lines[-1]) if lines else ():
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return None
