"""Put the faults of tests/data/faults.jsonl into a copy of the package: which do the tests notice?

    python scripts/faults.py trace TRACE -n 2 -q tests          # once: which test calls what
    python scripts/faults.py try TRACE --result R.jsonl tests   # with --shard 1/2, half of them

Run it in a copy of the tree, with Python 3.12 or newer and the copy first on PYTHONPATH: the
changed line is on disk too, for the processes that tests start. Only the tests that call the
changed function run, the quick ones first, until one fails; each fault has a fork of one pytest
process that has collected everything. The verdict is killed, survived, timeout (undecided),
unreached (no test calls the function) or moved (the line is no longer there, or there twice).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "seqpack_cli/"
TOOL = 4  # an id of sys.monitoring that no other tool uses here
FAULTS = "tests/data/faults.jsonl"


class Calls:
    """Which functions of the package are called, written to a file as soon as they are."""

    def __init__(self) -> None:
        self.file, self.seen = -1, set[str]()
        events = sys.monitoring
        events.use_tool_id(TOOL, "faults")
        events.register_callback(TOOL, events.events.PY_START, self.note)
        events.set_events(TOOL, events.events.PY_START)

    def write_to(self, path: str) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.seen.clear()
        sys.monitoring.restart_events()

    def note(self, code: types.CodeType, _: int) -> Any:
        if PACKAGE is None:  # the process ends
            return None
        start = code.co_filename.rfind(PACKAGE)
        if start >= 0 and self.file >= 0:
            name = code.co_qualname.split(".<locals>")[0].rpartition(".")[2]
            call = f"{code.co_filename[start:]} {name}"
            if call not in self.seen:
                self.seen.add(call)
                os.write(self.file, (call + "\n").encode())
        return sys.monitoring.DISABLE


def follow() -> None:
    """Trace a process that a test has started: its sitecustomize calls this."""
    if "FAULTS_TRACE" in os.environ:
        Calls().write_to(os.environ["FAULTS_TRACE"])


class Tracer:
    """Writes a file of calls for each test, and one for each fixture that several tests share."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.number = folder, Calls(), 0
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.index = (folder / f"{self.worker}.index").open("w", buffering=1)
        self.shared: dict[int, str] = {}

    def open_file(self) -> str:
        self.number += 1
        path = str(self.folder / f"{self.worker}-{self.number}.calls")
        os.environ["FAULTS_TRACE"] = path
        self.calls.write_to(path)
        return path

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        before = os.environ.get("FAULTS_TRACE")
        self.shared[id(fixturedef)] = self.open_file()
        try:
            return (yield)
        finally:
            if before:
                os.environ["FAULTS_TRACE"] = before
                self.calls.write_to(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        path, begin = self.open_file(), time.monotonic()
        try:
            return (yield)
        finally:
            defs = [d for ds in item._fixtureinfo.name2fixturedefs.values() for d in ds]
            files = [path, *(self.shared[id(d)] for d in defs if id(d) in self.shared)]
            seconds = time.monotonic() - begin
            self.index.write(json.dumps([item.nodeid, seconds, files]) + "\n")


def read_trace(folder: Path) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Return which tests call a function, and the seconds of each test."""
    tests, times = defaultdict[str, set[str]](set), {}
    for index in folder.glob("*.index"):
        for line in index.read_text().splitlines():
            test, times_of, files = json.loads(line)
            times[test] = times_of
            for file in files:
                if Path(file).exists():
                    for call in Path(file).read_text().splitlines():
                        tests[call].add(test)
    return tests, times


def find_code(code: types.CodeType, name: str, first: int) -> types.CodeType | None:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            if inner.co_name == name and inner.co_firstlineno == first:
                return inner
            if found := find_code(inner, name, first):
                return found
    return None


class Ruler:
    """Tries the faults, one fork after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tests, self.times = read_trace(options.trace)
        self.scratch = Path(f"{options.result}.tmp")
        self.scratch.mkdir(exist_ok=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for path in sorted(Path(PACKAGE).rglob("*.py")):
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            if not name.endswith("__main__"):
                importlib.import_module(name)
        gc.unfreeze()
        self.functions = defaultdict[tuple[str, str], list[types.FunctionType]](list)
        for found in gc.get_objects():
            if type(found) is types.FunctionType and PACKAGE in found.__code__.co_filename:
                code = found.__code__
                place = code.co_filename[code.co_filename.rfind(PACKAGE) :]
                self.functions[place, code.co_name].append(found)
        session.items.sort(key=lambda item: self.times.get(item.nodeid, 0))
        with Path(self.options.result).open("a", buffering=1) as result:
            for fault in self.iter_faults():
                verdict = self.try_fault(session, fault)
                result.write(json.dumps({**fault, **verdict}) + "\n")
        return True

    def iter_faults(self) -> Iterator[dict[str, Any]]:
        faults = [json.loads(line) for line in Path(self.options.faults).read_text().splitlines()]
        if self.options.only:
            faults = [fault for fault in faults if fault["old_suite"] == self.options.only]
        if self.options.where:
            faults = [fault for fault in faults if self.options.where in fault["path"]]
        shard, shards = map(int, self.options.shard.split("/"))
        yield from faults[shard - 1 :: shards]

    def try_fault(self, session: pytest.Session, fault: dict[str, Any]) -> dict[str, Any]:
        path = Path(fault["path"])
        original = path.read_text() if path.exists() else ""
        lines = original.split("\n")
        at = fault["line"] - 1
        if at >= len(lines) or lines[at] != fault["old_line"]:
            if lines.count(fault["old_line"]) != 1:
                return {"verdict": "moved"}
            at = lines.index(fault["old_line"])
        lines[at] = fault["new_line"]
        names = self.tests.get(f"{path} {fault['func']}", set())
        items = [item for item in session.items if item.nodeid in names]
        if not items:
            return {"verdict": "unreached"}
        changed = "\n".join(lines)
        caches = [*path.parent.glob(f"__pycache__/{path.stem}.*.pyc")]
        for cache in caches:
            cache.unlink()
        path.write_text(changed)
        begin = time.monotonic()
        try:
            verdict, by = self.run(session, items, fault, changed)
        finally:
            path.write_text(original)
            for cache in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                cache.unlink()
        return {
            "verdict": verdict,
            "by": by,
            "tests": len(items),
            "s": round(time.monotonic() - begin, 1),
        }

    def run(self, session: Any, items: list[Any], fault: Any, changed: str) -> tuple[str, str]:
        answer = self.scratch / "answer"
        answer.unlink(missing_ok=True)
        if not (child := os.fork()):
            try:
                self.run_child(session, items, fault, changed, answer)
            finally:
                os._exit(3)
        status, end = None, time.monotonic() + self.options.budget
        while status is None and time.monotonic() < end:
            done, code = os.waitpid(child, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(code)
            else:
                time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            os.waitpid(child, 0)
        word = {0: "survived", 1: "killed", None: "timeout"}.get(status, f"exit {status}")
        return word, answer.read_text() if answer.exists() else ""

    def run_child(
        self, session: Any, items: list[Any], fault: Any, changed: str, answer: Path
    ) -> None:
        os.setsid()
        out = os.open(str(self.scratch / "output"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        factory = session.config._tmp_path_factory
        factory._given_basetemp, factory._basetemp = self.scratch / f"t{os.getpid()}", None
        found = 0
        for function in self.functions[fault["path"], fault["func"]]:
            code = function.__code__
            file = str(Path(fault["path"]).resolve())
            new = find_code(compile(changed, file, "exec"), code.co_name, code.co_firstlineno)
            if new is not None and new != code:
                function.__code__ = new
                found += 1
        if not found:
            answer.write_text("no live function")

        class Reports:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    answer.write_text(report.nodeid)
                    answer.with_suffix(".why").write_text(str(report.longrepr)[-3000:])
                    os._exit(1)

        session.config.pluginmanager.register(Reports())
        for item, after in zip(items, [*items[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=["trace", "try"])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--result")
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--only", default="", help="faults of which the old suite said this")
    parser.add_argument("--where", default="", help="faults whose path has this in it")
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--budget", type=float, default=150)
    options, rest = parser.parse_known_args()
    if options.step == "trace":
        options.trace.mkdir(parents=True)
        site = options.trace / "site"
        site.mkdir()
        here = str(Path(__file__).parent.resolve())
        text = (
            f"import os, sys\nif 'FAULTS_TRACE' in os.environ:\n    sys.path.append({here!r})\n"
            "    import faults\n    faults.follow()\n"
        )
        (site / "sitecustomize.py").write_text(text)
        os.environ["FAULTS_FOLDER"] = str(options.trace.resolve())
        sites = [str(site.resolve()), here, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sites))
        return pytest.main(["-p", "faults", *rest])
    plain = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-s"]
    return pytest.main([*plain, *rest], plugins=[Ruler(options)])


def pytest_configure(config: Any) -> None:
    if "FAULTS_FOLDER" in os.environ and not hasattr(config, "faults_tracer"):
        config.faults_tracer = Tracer(Path(os.environ["FAULTS_FOLDER"]))
        config.pluginmanager.register(config.faults_tracer)


if __name__ == "__main__":
    sys.exit(main())
