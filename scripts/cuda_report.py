"""Run the parts of `scripts/cuda.sh` within their time limits, and write one JSON report.

FOLDER/cuda.json is written anew after each command: for each part its commands with exit status,
seconds, the last lines of their output, and what they printed as JSON. `ended` is "yes" once every
part had its turn. A part that fails or runs into its limit does not stop the others, and leaves
them the time that it did not need; only a machine without the device ends all. Parts chosen by name
share all of the time. The part "environment" runs first, whatever is chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuda_commands import FIRST, Command, Part, leave, run_command, stopping
from cuda_parts import list_parts


class Report:
    """The report and the file that holds it."""

    def __init__(self, path: Path, **head: Any) -> None:
        self.path = path
        self.content: dict[str, Any] = {**head, "ended": "no", "seconds": 0.0, "parts": {}}
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.write()

    def add(self, part: str, entry: dict[str, Any]) -> None:
        """Add a command that has ended, print one line about it, and write the file."""
        with self.lock:
            self.content["parts"].setdefault(part, []).append(entry)
            self.write()
            print(f"{entry['seconds']:6.1f} s  {part}: {entry['name']}: {say(entry)}", flush=True)

    def write(self) -> None:
        """Replace the file."""
        self.content["seconds"] = round(time.monotonic() - self.started, 1)
        written = self.path.with_suffix(".part")
        written.write_text(json.dumps(self.content, indent=1), encoding="utf-8")
        written.replace(self.path)

    def end(self, how: str) -> None:
        """Say in the file how all ended."""
        self.content["ended"] = how
        self.write()

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
    planned_end = report.started
    for name, part in parts.items():
        planned_end += part.seconds
        part_end = min(end, max(planned_end, time.monotonic() + part.seconds))

        def run(command: Command, name: str = name, part_end: float = part_end) -> None:
            if not stopping:
                report.add(name, run_command(command, part_end))

        for command in part.commands:
            run(command)
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(run, part.together))
        if stopping:
            return report.end(f"stopped by {signal.Signals(stopping[0]).name}")
        if name == FIRST and (failed := find_failure(report.content["parts"][name])):
            print(*failed["stderr"], sep="\n", file=sys.stderr)
            return report.end(f"{name}: {failed['name']} failed, so nothing else was run")
    report.end("yes")


def find_failure(entries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first command that failed by itself, not for want of time."""
    return next((it for it in entries if it["status"] and not it["timed_out"]), None)


def choose(parts: dict[str, Part], names: Iterable[str]) -> dict[str, Part]:
    """Return the named parts in the order of the script, or those that run without names.

    The first, which says what ran where, belongs to every report.
    """
    wanted = set(names)
    for name in sorted(wanted - parts.keys()):
        raise SystemExit(f"Error: --part {name}: expected one of {', '.join(parts)}")
    return {
        name: part
        for name, part in parts.items()
        if name == FIRST or (name in wanted if wanted else part.is_chosen)
    }


def stretch(parts: dict[str, Part], seconds: float) -> dict[str, Part]:
    """Let few parts share all of the time, in proportion to their limits."""
    factor = max(1.0, seconds / sum(part.seconds for part in parts.values()))
    return {name: replace(part, seconds=part.seconds * factor) for name, part in parts.items()}


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(prog="scripts/cuda.sh", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="Folder for cuda.json.")
    parser.add_argument("--device", default="cuda", help="cpu rehearses all but the tests.")
    parser.add_argument("--part", action="append", default=[], help="Only this one; repeatable.")
    parser.add_argument("--minutes", type=float, default=8.9, help="The time that the parts share.")
    parser.add_argument("--list", action="store_true", help="Print the parts and their limits.")
    parser.add_argument("--from", dest="origin", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # of nohup
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
        head = {"device": options.device, "began": time.strftime("%FT%TZ", time.gmtime())}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            report = Report(folder / "cuda.json", **head, chosen=list(chosen))
        except OSError as error:
            raise SystemExit(f"Error: {folder}: no report can be written: {error}") from error
        at_once = max(1, min(4, (os.cpu_count() or 1) // 4))
        run_parts(chosen, report, options.minutes * 60, at_once)
    ended = report.content["ended"]
    print(f"{report.content['seconds']:6.1f} s in all: {report.path}, ended: {ended}")
    raise SystemExit(128 + stopping[0] if stopping else 0 if report.passed else 1)


if __name__ == "__main__":
    main()
