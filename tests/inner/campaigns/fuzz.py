"""Run the fuzz targets many times: `python tests/campaigns/fuzz.py --executions 100000`.

Inputs follow from the seed, the target and their number, so that runs are reproducible. Workers are
processes under the limits of `fuzz_guard`; if one dies or hangs, its input is reported and another
worker continues after it. One input of every kind of finding is kept in a file, to be run again
with `--replay FILE`. With `--atheris` the coverage of the package guides the inputs: pip install
atheris in a separate environment. About 400 executions per second and core. The last line of stdout
is one JSON document; the exit code is 1 if something was found.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import mmap
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

NUM_BYTES = 96  # of an input: more than any target reads
CHUNK = 2000  # executions of a worker between two reports
GUIDED_CHUNK = 50_000  # executions of one process under atheris
NUM_WARM_UP = 40  # executions of each target, enough for every use
NUM_FIRST_INPUTS = 300  # for atheris to begin with
STILL_SECONDS = 90.0  # without a new execution, until a worker is killed
# Shares of the executions; targets that take longer than 2 ms have smaller ones.
WEIGHTS = {"ids": 2, "tokenizer_json": 2, "file_kinds": 2, "output_folder": 1}
USUAL_WEIGHT = 6
Count = Counter[tuple[str, bool, str]]


@dataclass
class Found:
    """One kind of finding."""

    target: str
    data: bytes
    text: str
    count: int = 1


@dataclass
class Result:
    """The counts and findings of some executions of one target."""

    target: str
    counts: Count = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Add up."""
        self.counts += other.counts
        for kind, one in other.found.items():
            if kind in self.found:
                self.found[kind].count += one.count
            else:
                self.found[kind] = one

    def note(self, data: bytes, error: BaseException) -> None:
        """Note a finding by its kind and place."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "seqpack_cli" in frame.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
        text = "".join(traceback.format_exception(error)) if own else str(error)
        is_limit = type(error).__name__ == "LimitError"  # wherever it stopped: one kind
        kind = str(error)[:60] if is_limit else f"{type(error).__name__} at {place}"
        self.add(Result(self.target, found={kind: Found(self.target, data, text)}))


@dataclass(frozen=True)
class Chunk:
    """Executions that one worker does in one go."""

    target: str
    first: int
    last: int


def draw_input(seed: int, target: str, number: int) -> bytes:
    """Draw the bytes of one execution."""
    return random.Random(f"{seed} {target} {number}").randbytes(NUM_BYTES)


def execute(target: str, data: bytes, result: Result) -> None:
    """Run a target once and count its outcome."""
    from fuzz_controls import CONTROLS
    from fuzz_targets import TARGETS

    try:
        outcome = (TARGETS | CONTROLS)[target](data)
        result.counts[outcome.use, outcome.opened, outcome.error or "success"] += 1
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        result.note(data, error)
        error.__traceback__ = None


def prepare(targets: Iterable[str]) -> None:
    """Build the good folders, run targets a few times, then set the limits of this process."""
    import fuzz_targets
    import fuzz_uses
    from fuzz_guard import Guard
    from fuzz_lab import open_lab

    lab = open_lab()
    for target in fuzz_targets.TARGETS.keys() & targets:
        for number in range(NUM_WARM_UP):  # so that no later execution imports anything
            with contextlib.suppress(Exception):
                fuzz_targets.TARGETS[target](draw_input(-1, target, number))
    fuzz_uses.set_guard(Guard(lab.root).watch)
    gc.collect()
    gc.freeze()


def work(connection: Connection, state: str, seed: int, targets: list[str]) -> None:
    """Be a worker: run the chunks received, and send their results."""
    prepare(targets)
    with open(state, "r+b") as file:  # noqa: PTH123
        number = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    while (chunk := connection.recv()) is not None:
        result = Result(chunk.target)
        for place in range(chunk.first, chunk.last):
            number[0] = place
            execute(chunk.target, draw_input(seed, chunk.target, place), result)
        connection.send(result)


class Worker:
    """The parent's side of a worker process."""

    def __init__(self, folder: Path, number: int, seed: int, targets: list[str]) -> None:
        self._state = folder / f"state-{number}"
        self._state.write_bytes(bytes(8))
        self.connection, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=work, args=(theirs, str(self._state), seed, targets), daemon=True
        )
        self._process.start()
        theirs.close()
        self.chunk: Chunk | None = None
        self._seen, self._since = -1, time.monotonic()

    def give(self, chunk: Chunk | None) -> None:
        """Send it a chunk, or None to end it."""
        self.chunk, self._since = chunk, time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            self.connection.send(chunk)

    @property
    def number(self) -> int:
        """Return the number of the execution that it runs, or died in."""
        return int.from_bytes(self._state.read_bytes(), sys.byteorder)

    def end_if_still(self) -> bool:
        """Kill it if one execution takes too long."""
        if self.number != self._seen:
            self._seen, self._since = self.number, time.monotonic()
        is_still = time.monotonic() - self._since > STILL_SECONDS
        if is_still:
            self._process.kill()
        return is_still

    def describe_end(self) -> str:
        """Wait for its end and describe it."""
        self._process.join()
        return f"the process ended with {self._process.exitcode}"


def run(
    targets: list[str], *, executions: int, seed: int, num_workers: int, folder: Path
) -> dict[str, Result]:
    """Run targets in worker processes; return what came of each."""
    results = {target: Result(target) for target in targets}
    chunks = deque(cut_chunks(targets, executions))
    workers = [
        Worker(folder, number, seed, targets) for number in range(min(num_workers, len(chunks)))
    ]
    for worker in workers:
        worker.give(chunks.popleft() if chunks else None)
    busy = [worker for worker in workers if worker.chunk is not None]
    while busy:
        ready = wait([worker.connection for worker in busy], timeout=1.0)
        for place, worker in enumerate(busy):
            if worker.connection in ready:
                try:
                    result = worker.connection.recv()
                    results[result.target].add(result)
                except (EOFError, ConnectionResetError):
                    busy[place] = worker = _replace(worker, results, chunks, folder, place, seed)
                worker.give(chunks.popleft() if chunks else None)
            else:
                worker.end_if_still()  # then its connection ends
        busy = [worker for worker in busy if worker.chunk is not None]
    return results


def _replace(
    worker: Worker,
    results: dict[str, Result],
    chunks: deque[Chunk],
    folder: Path,
    place: int,
    seed: int,
) -> Worker:
    """Note the input that a worker died of, and run the rest of its chunk in a new worker."""
    chunk, number = worker.chunk, worker.number
    assert chunk is not None
    end = worker.describe_end()
    if not chunk.first <= number < chunk.last:
        raise RuntimeError(f"a worker ended before its work began: {end}")
    data = draw_input(seed, chunk.target, number)
    kind = f"{end} at {chunk.target}"
    results[chunk.target].add(Result(chunk.target, found={kind: Found(chunk.target, data, end)}))
    for first, last in ((chunk.first, number), (number + 1, chunk.last)):
        if first < last:
            chunks.appendleft(Chunk(chunk.target, first, last))
    return Worker(folder, 1000 + number * 10 + place, seed, [*results])


def cut_chunks(targets: list[str], executions: int) -> Iterator[Chunk]:
    """Divide executions among the targets, and cut them into chunks that alternate targets.

    >>> [chunk.last for chunk in cut_chunks(["index", "output_folder"], 10)]
    [9, 1]
    """
    weights = {target: WEIGHTS.get(target, USUAL_WEIGHT) for target in targets}
    total, left = sum(weights.values()), executions
    shares = {target: executions * weight // total for target, weight in weights.items()}
    shares[targets[0]] += left - sum(shares.values())
    for first in range(0, max(shares.values()), CHUNK):
        for target, share in shares.items():
            if first < share:
                yield Chunk(target, first, min(first + CHUNK, share))


def run_atheris(
    targets: list[str], *, executions: int, seed: int, num_workers: int, folder: Path
) -> dict[str, Result]:
    """Run targets guided by coverage, each in its own process."""
    share = -(-executions // len(targets))
    with ThreadPoolExecutor(num_workers) as pool:
        results = pool.map(lambda target: _run_guided(target, share, seed, folder), targets)
        return dict(zip(targets, results, strict=True))


def _run_guided(target: str, executions: int, seed: int, folder: Path) -> Result:
    """Run one target, in a new process from time to time, with the inputs found so far."""
    result = Result(target)
    corpus = folder / f"corpus-{target}"
    corpus.mkdir()
    for number in range(NUM_FIRST_INPUTS):
        (corpus / f"first-{number}").write_bytes(draw_input(seed, target, number))
    for first in range(0, executions, GUIDED_CHUNK):
        state = folder / f"{target}-{first}.json"
        count = min(GUIDED_CHUNK, executions - first)
        arguments = [target, str(count), str(seed + first), str(state), str(corpus)]
        command = [sys.executable, __file__, "--guided", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if state.exists():
            _load(json.loads(state.read_text()), result)
        if ended.returncode:
            crashes = sorted(folder.glob(f"{state.stem}.artifact-*"))
            data = crashes[0].read_bytes() if crashes else b""
            kind = f"the process ended with {ended.returncode} at {target}"
            one = Found(target, data, ended.stderr[-5000:])
            result.add(Result(target, found={kind: one}))
    return result


def _load(saved: dict[str, Any], result: Result) -> None:
    for use, opened, error, count in saved["counts"]:
        result.counts[use, opened, error] += count
    for kind, data, text, count in saved["found"]:
        one = Found(result.target, bytes.fromhex(data), text, count)
        result.add(Result(result.target, found={kind: one}))


def guide(target: str, executions: int, seed: int, state: Path, corpus: Path) -> None:
    """Run one target in this process under atheris, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["seqpack_cli"]):
        prepare([target])
    result = Result(target)
    seen = 0

    def save() -> None:
        counts = [[*key, count] for key, count in result.counts.items()]
        found = [[k, one.data.hex(), one.text, one.count] for k, one in result.found.items()]
        temporary = state.with_suffix(".new")
        temporary.write_text(json.dumps({"counts": counts, "found": found}))
        temporary.replace(state)

    def execute_one(data: bytes) -> None:
        nonlocal seen
        execute(target, data, result)
        seen += 1
        if seen % 200 == 0 or seen >= executions:
            save()

    options = [f"-runs={executions}", f"-seed={seed or 1}", f"-max_len={NUM_BYTES}", "-timeout=90"]
    options += ["-rss_limit_mb=0", f"-artifact_prefix={state.with_suffix('')}.artifact-"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], execute_one)
    atheris.Fuzz()


def report(results: dict[str, Result], *, seconds: float, kept: Path) -> dict[str, Any]:
    """Keep the inputs of findings, print them, and return all counts as plain values."""
    document: dict[str, Any] = {"executions": 0, "seconds": round(seconds, 1), "targets": {}}
    findings = []
    for target, result in results.items():
        for kind, one in result.found.items():
            path = keep_input(one, kept, len(findings))
            print(f"\n{target}: {kind}, {one.count} times\n{one.text}", file=sys.stderr)
            print(f"again: python tests/campaigns/fuzz.py --replay {path}", file=sys.stderr)
            findings.append(
                {"target": target, "kind": kind, "count": one.count, "input": str(path)}
            )
        document["targets"][target] = described = _describe(result)
        document["executions"] += described["executions"]
    document["per_second"] = round(document["executions"] / max(seconds, 1e-3), 1)
    document["findings"] = findings
    return document


def _describe(result: Result) -> dict[str, Any]:
    total = sum(result.counts.values())
    outcomes: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    num_opened = 0
    for (use, opened, error), count in result.counts.items():
        outcomes[error] += count
        uses[use] += count
        num_opened += count * opened
    num_found = sum(one.count for one in result.found.values())
    return {
        "executions": total + num_found,
        "opened": round(num_opened / max(total, 1), 3),
        "findings": num_found,
        "outcomes": dict(outcomes.most_common()),
        "uses": dict(uses.most_common()),
    }


def keep_input(found: Found, folder: Path, number: int) -> Path:
    """Keep the input of a finding in a file that names its target."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.target}.{number}.bin"
    path.write_bytes(found.data)
    return path


def replay(path: Path) -> None:
    """Run one kept input under the limits, in this process; a finding is printed."""
    result = Result(path.name.split(".")[0])
    prepare([result.target])
    execute(result.target, path.read_bytes(), result)
    print(*result.counts, *(one.text for one in result.found.values()))


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    from fuzz_controls import CONTROLS
    from fuzz_lab import HOME_VARIABLE, find_memory_folder
    from fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=[*TARGETS, *CONTROLS])
    parser.add_argument("--num-workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--atheris", action="store_true", help="guided by coverage")
    parser.add_argument("--findings", type=Path, help="folder for inputs, a new one by default")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.replay:
        replay(options.replay)
        return 0
    started = time.monotonic()
    targets = options.target or [*TARGETS]
    prefix, home = "seqpack-fuzz-run-", find_memory_folder()
    with tempfile.TemporaryDirectory(prefix=prefix, dir=home) as folder:
        os.environ[HOME_VARIABLE] = folder  # of workers, which may end without a cleanup
        common = {"executions": options.executions, "seed": options.seed, "folder": Path(folder)}
        run_all = run_atheris if options.atheris else run
        results = run_all(targets, num_workers=options.num_workers, **common)
    kept = options.findings or Path(tempfile.gettempdir()) / f"seqpack-fuzz-{time.time_ns()}"
    document = report(results, seconds=time.monotonic() - started, kept=kept)
    print(json.dumps(document))
    return 1 if document["findings"] else 0


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here.parents[1]), str(here.parent), str(here)]
    if sys.argv[1:2] == ["--guided"]:
        name, amount, start, *paths = sys.argv[2:]
        guide(name, int(amount), int(start), *map(Path, paths))
    else:
        sys.exit(main())
