"""Kill runs at random times, run them again, and compare every byte with an uninterrupted run.

`PYTHONPATH=tests python tests/campaigns/kills.py --kills 200 --megabytes 200` runs the whole
campaign by hand; the tests run small ones. Runs are chained: run, kill, check what is left, run
again, kill, ... until one ends by itself; then its bytes are compared and a new chain begins. Each
run has its own session, so that all its processes can be found, in /proc (Linux only).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from blake3 import blake3
from command import run

SAMPLE_DATA = Path(__file__).parents[3] / "sample_data"
COMMAND = [sys.executable, "-m", "seqpack_cli"]
END_SECONDS = 10  # in which every process of a killed run must end
STUCK_SECONDS = 300  # until a run that was not killed counts as hanging
PIPE_BYTES = 1 << 16  # a larger task is still being sent when its worker is killed
RECEIPT = re.compile(r"(part|shard)-\d{5,}\.json")
LEFTOVER = re.compile(r"\..*|plan\.json|" + RECEIPT.pattern)

# What is killed; `at once` runs again while orphaned workers may still be alive.
KINDS = ("parent", "worker", "interrupt", "terminate", "all", "parent, at once")


@dataclass(frozen=True)
class Ended:
    """How one run ended."""

    code: int
    stderr: str
    was_killed: bool
    had_begun: bool = True  # it held the folder's lock when it was killed
    hanging: tuple[str, ...] = ()  # the processes that did not end in time


@dataclass
class Counts:
    """The counts of a campaign."""

    kinds: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    num_chains: int = 0
    num_resumed: int = 0  # finished parts or shards that a later run kept
    num_complete_after_kill: int = 0
    num_tracebacks: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def num_kills(self) -> int:
        return sum(self.kinds.values())

    def describe(self) -> dict[str, object]:
        """Return everything as plain values, with the number of kills."""
        return {"num_kills": self.num_kills, **vars(self)}


# Processes


def list_session(session: int) -> dict[int, str]:
    """Return the living processes of a session, and how they were called."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it may have ended
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace")
    return found


def list_workers(session: int) -> list[int]:
    return [
        pid for pid, called in list_session(session).items() if "seqpack_cli.runs.workers" in called
    ]


def wait_for_end(session: int, seconds: float = END_SECONDS) -> list[str]:
    """Wait until a session has no process; kill and return those left at the deadline."""
    deadline = time.monotonic() + seconds
    while alive := list_session(session):
        if time.monotonic() > deadline:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return list(alive.values())
        time.sleep(0.01)
    return []


def start(arguments: list[str], stderr: IO[bytes], **options: Any) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own; a file takes what it says, a pipe could fill."""
    options.setdefault("preexec_fn", _hear_interrupts)
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
        **options,
    )


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a campaign may itself run where it is ignored


def kill(process: subprocess.Popen[bytes], kind: str, chance: random.Random) -> bool:
    """Send a run its signal; a worker is waited for. Say whether there was still one to send to."""
    victims = [process.pid]
    if kind == "worker":
        while not (victims := list_workers(process.pid)):
            if process.poll() is not None:
                return False
            time.sleep(0.002)
        victims = [chance.choice(victims)]
    elif kind == "all":
        victims = list(list_session(process.pid))
    with contextlib.suppress(ProcessLookupError):
        if kind == "interrupt":
            os.killpg(process.pid, signal.SIGINT)
        elif kind == "terminate":
            process.terminate()
        else:
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
    return True


def run_until(
    arguments: list[str],
    folder: Path,
    kind: str | None = None,
    delay: float = 0,
    chance: random.Random | None = None,
) -> tuple[Ended, int]:
    """Run the program, killed after a delay unless it ends before; return its end and session."""
    arguments = [*arguments, "-o", str(folder)]
    with tempfile.TemporaryFile() as stderr, start(arguments, stderr) as process:
        was_killed = had_begun = False
        if kind is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            had_begun = holds_lock(folder, process.pid)
            chance = chance or random.Random()
            was_killed = process.poll() is None and kill(process, kind, chance)
        hanging: list[str] = []
        try:
            process.wait(END_SECONDS if was_killed else STUCK_SECONDS)
        except subprocess.TimeoutExpired:
            hanging = [f"hangs: {list(list_session(process.pid).values())}"]
            wait_for_end(process.pid, 0)
        if kind != "parent, at once":
            hanging += [f"outlives the run: {called}" for called in wait_for_end(process.pid)]
        process.wait()
        said = os.pread(stderr.fileno(), 1 << 20, 0).decode(errors="replace")
        code = process.returncode
        return Ended(code, said, was_killed, had_begun, tuple(hanging)), process.pid


# What a run leaves


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the checksum of every file except run.json, which may differ between equal runs."""
    found = {}
    for path in list_files(folder):
        if path.name != "run.json":
            with path.open("rb") as file:
                name = str(path.relative_to(folder))  # splits have folders of their own
                found[name] = hashlib.file_digest(file, blake3).hexdigest()
    return found


def holds_lock(folder: Path, pid: int) -> bool:
    """Return whether a process has come so far that it wrote itself into the folder's lock."""
    try:
        return (folder / ".lock").read_text().split()[-1:] == [str(pid)]
    except OSError:
        return False


def count_receipts(folder: Path) -> int:
    return sum(RECEIPT.fullmatch(path.name) is not None for path in list_files(folder))


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def name_state(folder: Path, num_tasks: int) -> str:
    """Say how far a run had come."""
    names = {path.name for path in list_files(folder)}
    if "manifest.json" in names:
        return "manifest" + (" and plan" if "plan.json" in names else "")
    if "plan.json" not in names:
        return "no plan" if names else "no folder"
    num_receipts = count_receipts(folder)
    if num_receipts in (0, num_tasks):
        return "plan, no receipt" if num_receipts == 0 else "all receipts"
    return "some receipts"


def find_fault(ended: Ended, kind: str, folder: Path, whole: dict[str, str]) -> str | None:
    """Return a fault in what a killed run left, if any."""
    inspected = run("inspect", folder)
    if inspected.exit_code not in (0, 4):
        return f"inspect ends with {inspected.exit_code}: {inspected.output}"
    is_complete = inspected.exit_code == 0
    if ended.code == 0 and not is_complete:
        return f"ended with 0, not complete: {inspected.output}"
    if is_complete:
        found = hash_folder(folder)
        changed = [name for name, digest in whole.items() if found.get(name) != digest]
        if changed:
            return f"called complete, other bytes: {changed}"
        others = [name for name in found if name not in whole]
        extra = [name for name in others if not LEFTOVER.fullmatch(Path(name).name)]
        return f"called complete, holds {extra}" if extra else None
    allowed = {
        "parent": {-signal.SIGKILL},
        "parent, at once": {-signal.SIGKILL},
        "all": {-signal.SIGKILL},
        "worker": {5},
        "interrupt": {130} | ({-signal.SIGINT, 1} if not ended.had_begun else set()),
        "terminate": {130} | ({-signal.SIGTERM} if not ended.had_begun else set()),
    }
    if ended.code not in allowed[kind]:
        return f"ended with {ended.code}: {ended.stderr[-1500:]}"
    if kind == "worker" and not re.search(
        r"worker process died while (it started|working on: (\w+/)?(part|shard)-\d{5})",
        ended.stderr,
    ):
        return f"does not name what a killed worker held: {ended.stderr}"
    return None


def find_difference(folder: Path, whole: dict[str, str]) -> str | None:
    """Return a fault in the folder of a run that ended with exit code 0, if any."""
    found = hash_folder(folder)
    if set(found) != set(whole):
        return f"files differ: {sorted(set(found) ^ set(whole))}"
    changed = [name for name, digest in whole.items() if found[name] != digest]
    return f"other bytes: {changed}" if changed else None


# The campaign


def run_campaign(
    arguments: list[str],
    folder: Path,
    *,
    num_kills: int,
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    share: float = 1.0,
) -> Counts:
    """Kill runs of a command num_kills times, then let the last chain end.

    Args:
        arguments: of the program, without `-o`.
        folder: for the outputs of the uninterrupted and the killed runs.
        share: of the uninterrupted run's duration, within which a run is killed.
    """
    chance = random.Random(seed)
    unbroken, broken = folder / "unbroken", folder / "broken"
    began = time.monotonic()
    ended, _ = run_until(arguments, unbroken)
    if ended.code != 0:
        raise RuntimeError(ended.stderr)
    seconds = (time.monotonic() - began) * share
    whole = hash_folder(unbroken)
    num_tasks = sum(
        re.fullmatch(r"part-.*\.bin|shard-.*", Path(name).name) is not None for name in whole
    )
    shutil.rmtree(unbroken)
    counts = Counts()
    orphans: int | None = None
    while True:
        is_over = counts.num_kills >= num_kills
        kind = None if is_over else kinds[counts.num_kills % len(kinds)]
        num_receipts = count_receipts(broken)
        delay = chance.uniform(0, seconds)
        ended, session = run_until(arguments, broken, kind, delay, chance)
        outlived = wait_for_end(orphans) if orphans is not None else []
        if outlived:
            counts.faults.append(f"outlived the run before: {outlived}")
        was_alone, orphans = orphans is None, None
        _count_resumed(counts, ended.stderr, num_receipts, was_alone)
        if ended.was_killed and kind is not None:
            if kind == "parent, at once":
                orphans = session
            counts.kinds[kind] += 1
            counts.codes[f"{kind}: {ended.code}"] += 1
            counts.states[name_state(broken, num_tasks)] += 1
            counts.num_tracebacks += "Traceback" in ended.stderr
            fault = find_fault(ended, kind, broken, whole)
            if fault is None and run("inspect", broken).exit_code == 0:
                counts.num_complete_after_kill += 1
        else:
            fault = find_difference(broken, whole) if ended.code == 0 else ended.stderr
            fault = fault and f"run that was not killed, code {ended.code}: {fault}"
            counts.num_chains += 1
            shutil.rmtree(broken, ignore_errors=True)
        counts.faults += ended.hanging
        if fault is not None:
            counts.faults.append(f"kill {counts.num_kills}, {kind}: {fault}")
        if is_over:
            return counts


def _count_resumed(counts: Counts, stderr: str, num_receipts: int, was_alone: bool) -> None:
    """Count the finished parts that a run kept; it must have kept all of them."""
    kept = re.findall(r"(\d+) of \d+ (?:parts|shards) were finished before", stderr)
    if not kept:
        return
    num_resumed = sum(map(int, kept))  # of each split
    counts.num_resumed += num_resumed
    if num_resumed < num_receipts or (was_alone and num_resumed > num_receipts):
        counts.faults.append(f"{num_receipts} receipts, {num_resumed} parts taken")


# The input


def write_text(path: Path, num_bytes: int) -> Path:
    """Write num_bytes of text: Python's own library, else the samples, with each file numbered."""
    left = num_bytes
    with path.open("wb") as file:
        for number, text in enumerate(_iter_texts()):
            data = f"file {number}\n{text}\n".encode()[:left]
            file.write(data.decode(errors="ignore").encode())
            left -= len(data)
            if left <= 0:
                return path
    raise RuntimeError("no text")


@functools.cache
def _find_sources() -> list[Path]:
    sources = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    return [*sources, *sorted(SAMPLE_DATA.rglob("*.txt"))]


def _iter_texts() -> Iterator[str]:
    while True:
        for source in _find_sources():
            with contextlib.suppress(OSError):
                yield source.read_bytes().decode(errors="ignore")


def write_long_tokenizer(path: Path) -> Path:
    """Write the sample tokenizer with spaces after it, so that a task is larger than a pipe."""
    path.write_bytes((SAMPLE_DATA / "tokenizer.json").read_bytes() + b" " * 4 * PIPE_BYTES)
    return path


def main() -> None:
    """Run the campaign: as many kills of tokenize, then of pack."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.4)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        faults = campaign_of_both(
            Path(name), chosen.kills, chosen.megabytes * 1_000_000, chosen.seed, chosen.share
        )
    sys.exit(1 if faults else 0)


def campaign_of_both(
    folder: Path, num_kills: int, num_bytes: int, seed: int, share: float
) -> list[str]:
    """Kill tokenize runs over a text, then pack runs over its store; print the counts."""
    text = write_text(folder / "text.txt", num_bytes)
    tokenizer = write_long_tokenizer(folder / "tokenizer.json")
    size = max(30_000, num_bytes // 50)  # about fifty parts and shards
    options = ["--num-workers", "2"]
    tokenize = ["tokenize", str(text), "--tokenizer", str(tokenizer), "--part-bytes", str(size)]
    pack = ["pack", str(folder / "store"), "--shard-bytes", str(size)]
    faults: list[str] = []
    for arguments in (tokenize, pack):
        (folder / arguments[0]).mkdir()
        began = time.monotonic()
        counts = run_campaign(
            [*arguments, *options],
            folder / arguments[0],
            num_kills=num_kills,
            seed=seed,
            share=share,
        )
        seconds = round(time.monotonic() - began)
        found = {"command": arguments[0], "seconds": seconds, **counts.describe()}
        print(json.dumps(found, indent=1, default=dict), flush=True)
        faults += counts.faults
        if arguments is tokenize:
            run_until([*tokenize, *options], folder / "store")
    return faults


if __name__ == "__main__":
    main()
