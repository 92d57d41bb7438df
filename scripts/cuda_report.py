"""Run the parts of `scripts/cuda.sh` within their time limits, and write one JSON report.

FOLDER/cuda.json is written anew after each command: for each part its commands with exit status,
seconds, the last lines of their output, and what they printed as JSON. A part that fails or runs
into its limit does not stop the others; parts chosen by name share all of the time. A command at
its limit gets Ctrl-C, by which pytest still prints its summary, and is killed five seconds later.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 400
SECONDS_TO_STOP = 5
running: set[int] = set()  # process groups


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


class Report:
    """The report and the file that holds it."""

    def __init__(self, path: Path, **head: Any) -> None:
        self.path = path
        self.content: dict[str, Any] = {**head, "parts": {}}
        self.lock = threading.Lock()
        self.started = time.monotonic()

    def add(self, part: str, entry: dict[str, Any]) -> None:
        """Add a command that has ended, print one line about it, and write the file."""
        with self.lock:
            self.content["parts"].setdefault(part, []).append(entry)
            self.content["seconds"] = round(time.monotonic() - self.started, 1)
            written = self.path.with_suffix(".part")
            written.write_text(json.dumps(self.content, indent=1), encoding="utf-8")
            written.replace(self.path)
            print(f"{entry['seconds']:6.1f} s  {part}: {entry['name']}: {say(entry)}", flush=True)

    @property
    def passed(self) -> bool:
        """Whether every command ran and ended with 0."""
        entries = [entry for part in self.content["parts"].values() for entry in part]
        return all(entry["status"] == 0 for entry in entries)


def say(entry: dict[str, Any]) -> str:
    """Return in words how a command ended."""
    if entry["status"] is None:
        return "not run: no time is left"
    if entry["timed_out"]:
        return f"stopped at its limit of {entry['limit']:.0f} s"
    return "passed" if entry["status"] == 0 else f"FAILED with exit status {entry['status']}"


def run_parts(parts: dict[str, Part], report: Report, seconds: float, at_once: int) -> None:
    """Run parts until `seconds` have passed since the report began, commands as they come."""
    end = report.started + seconds
    for name, part in parts.items():
        part_end = min(end, time.monotonic() + part.seconds)

        def run(command: Command, name: str = name, part_end: float = part_end) -> None:
            report.add(name, run_command(command, part_end))

        for command in part.commands:
            run(command)
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(run, part.together))


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
    """End with all that runs: on Ctrl-C or when something else stops this script."""
    for pid in list(running):
        kill_group(pid)
    os._exit(128 + number)


def read_text(file: Any) -> str:
    """Return what a process wrote."""
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def last_lines(text: str) -> list[str]:
    """Return the last lines of an output that is not JSON."""
    return [line[:2000] for line in text.splitlines()[-LAST_LINES:]]


def find_json(text: str) -> Any:
    """Return the JSON document that an output is or ends with, or None."""
    for candidate in (text, text.rstrip().rpartition("\n")[2]):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return None


def choose(parts: dict[str, Part], names: Iterable[str]) -> dict[str, Part]:
    """Return the named parts in the order of the script, or those that run without names."""
    wanted = set(names)
    for name in sorted(wanted - parts.keys()):
        raise SystemExit(f"Error: --part {name}: expected one of {', '.join(parts)}")
    return {
        name: part for name, part in parts.items() if (name in wanted if wanted else part.is_chosen)
    }


def stretch(parts: dict[str, Part], seconds: float) -> dict[str, Part]:
    """Let few parts share all of the time, in proportion to their limits."""
    factor = max(1.0, seconds / sum(part.seconds for part in parts.values()))
    return {name: replace(part, seconds=part.seconds * factor) for name, part in parts.items()}


def main() -> None:
    """Run the chosen parts."""
    from cuda_parts import list_parts

    parser = argparse.ArgumentParser(prog="scripts/cuda.sh", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="Folder for cuda.json.")
    parser.add_argument("--device", default="cuda", help="cpu rehearses all but the tests.")
    parser.add_argument("--part", action="append", default=[], help="Only this one; repeatable.")
    parser.add_argument("--minutes", type=float, default=8.9, help="The time that the parts share.")
    parser.add_argument("--list", action="store_true", help="Print the parts and their limits.")
    parser.add_argument("--from", dest="origin", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    with tempfile.TemporaryDirectory(prefix="seqpack-cuda-") as work:
        parts = list_parts(options.device, Path(work))
        if options.list or options.folder is None:
            for name, part in parts.items():
                ending = "" if part.is_chosen else ", by name alone"
                print(f"{name:<12} {part.seconds:4.0f} s{ending}")
            return
        chosen = stretch(choose(parts, options.part), options.minutes * 60)
        folder = Path(options.origin, options.folder)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.strftime("%FT%TZ", time.gmtime())
        report = Report(folder / "cuda.json", device=options.device, began=began)
        at_once = max(1, min(4, (os.cpu_count() or 1) // 4))
        run_parts(chosen, report, options.minutes * 60, at_once)
    print(f"{report.content['seconds']:6.1f} s in all: {report.path}")
    raise SystemExit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
