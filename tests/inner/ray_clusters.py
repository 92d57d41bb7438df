"""Real Ray clusters on this machine, and tasks that record where they ran; workers import them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from seqpack_cli.errors import DataError
from seqpack_cli.runs.progress import advance

END_SECONDS = 20  # until every process of an ended cluster must be gone
GO_SECONDS = 60
# The time in which a cluster notices that a node is gone; 15 s by default.
SOON = {"RAY_health_check_period_ms": "300", "RAY_health_check_failure_threshold": "3"}


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """Create a folder with a short path: the path of a socket may have 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="seqpack-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def leading_to(folder: Path) -> Iterator[None]:
    """Make this process and its children use a folder for Ray: they find no other cluster."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@contextlib.contextmanager
def ray_folder() -> Iterator[Path]:
    """Yield Ray a folder of its own: here it finds no cluster of others, nor they ours."""
    with new_folder() as folder, leading_to(folder):
        yield folder


@dataclass(frozen=True)
class Running:
    """A running cluster of one node, and its folder."""

    cluster: Cluster
    folder: Path

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Connect this process to it until the block ends."""
        with leading_to(self.folder):
            ray.init(address=self.cluster.address, log_to_driver=False, logging_level="error")
            try:
                yield
            finally:
                ray.shutdown()


@contextlib.contextmanager
def running_cluster(num_cpus: int) -> Iterator[Running]:
    """Start a cluster of one node; processes do not find it unless they connect to its address."""
    with new_folder() as folder:
        with leading_to(folder):
            cluster = Cluster(initialize_head=True, head_node_args=node_options(num_cpus))
        try:
            yield Running(cluster, folder)
        finally:
            cluster.shutdown()


@dataclass(frozen=True)
class Started:
    """A cluster started by `ray start`, and the environment in which a user's process finds it."""

    address: str
    folder: Path
    environment: dict[str, str]

    def add_node(self, *options: str) -> None:
        """Start one more node, with the cluster's token."""
        mode = "token" if (self.folder / "home" / ".ray" / "auth_token").exists() else "disabled"
        environment = {**self.environment, "RAY_AUTH_MODE": mode}
        _ray_start(environment, "--address", self.address, *options)

    def find_process(self, name: str) -> int:
        """Return the oldest process of a name."""
        found = list_processes(self.folder)
        return min(pid for pid, called in found.items() if name in called.split(" ")[0])


@contextlib.contextmanager
def started_cluster(*options: str, has_token: bool) -> Iterator[Started]:
    """Run `ray start --head` with a home folder of its own; end what it started.

    Once Ray has started a cluster by itself, there is a token in the home folder, and from then on
    `ray start` makes the cluster require it.
    """
    with ray_folder() as folder:
        if has_token:
            (folder / "home" / ".ray").mkdir(parents=True)
            (folder / "home" / ".ray" / "auth_token").write_text(uuid.uuid4().hex * 2)
        environment = {**os.environ, "HOME": str(folder / "home"), **SOON}
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            environment.pop(name, None)
        try:
            _ray_start(environment, "--head", "--port=0", "--include-dashboard=false", *options)
            address = (folder / "ray" / "ray_current_cluster").read_text()
            yield Started(address, folder, environment)
        finally:
            for pid in list_processes(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _ray_start(environment: dict[str, str], *options: str) -> None:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
    # Not into a pipe: the processes that it starts would keep it open.
    done = subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0


def node_options(num_cpus: int) -> dict[str, Any]:
    return {"num_cpus": num_cpus, "include_dashboard": False}


def list_processes(mark: Path) -> dict[int, str]:
    """Return the living processes that were started with a folder in their environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it may have ended
            if folder.name.isdigit() and str(mark).encode() in (folder / "environ").read_bytes():
                called = (folder / "cmdline").read_text(errors="replace")
                found[int(folder.name)] = called.rstrip("\0").replace("\0", " ")
    return found


def wait_until_gone(mark: Path) -> list[str]:
    """Wait until no process has a folder in its environment; return those left at the deadline.

    Agents end by themselves, but need a minute if their raylet was killed.
    """
    deadline = time.monotonic() + END_SECONDS
    while True:
        alive = [called for called in list_processes(mark).values() if "Agent" not in called]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)


# Tasks


@dataclass(frozen=True)
class Job:
    """A task that writes a file for each attempt."""

    number: int
    folder: Path

    def __str__(self) -> str:
        return f"job-{self.number}"


@dataclass(frozen=True)
class Attempt:
    """The process that began a job."""

    pid: int
    node: str


class Counted:
    """A value that counts how often this process pickled it."""

    num_pickled = 0

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        Counted.num_pickled += 1
        return Counted, (self.data,)


class Foreign:
    """A value that no worker can unpickle, like a value of another version."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (os, "no_such_name")


def begin(job: Job) -> None:
    """Write a file that says which process works on a job."""
    node = ray.get_runtime_context().get_node_id()
    temp = job.folder / f".{uuid.uuid4().hex}"
    temp.write_text(f"{os.getpid()} {node}")
    temp.rename(job.folder / f"{job.number}-{temp.name[1:]}")


def read_attempts(folder: Path, number: int) -> list[Attempt]:
    """Read the attempts of a job."""
    texts = [path.read_text().split() for path in folder.glob(f"{number}-*")]
    return [Attempt(int(pid), node) for pid, node in texts]


def wait_for_go(job: Job) -> int:
    """Wait for the file `go`; report half of the work before it and half after."""
    begin(job)
    advance(1, 10)
    deadline = time.monotonic() + GO_SECONDS
    try:
        while not (job.folder / "go").exists():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.02)
    finally:
        (job.folder / f"{job.number}.ended").touch()
    advance(1, 10)
    return job.number


def wait_or_fail(job: Job) -> int:
    """Wait for the file `go`; job 0 fails with a bad record when all others wait."""
    if job.number > 0:
        return wait_for_go(job)
    while not read_attempts(job.folder, 1):
        time.sleep(0.02)
    raise DataError("a.jsonl:7: no field 'text'", hint="pass --text-field body")


def kill_own_worker(job: Job) -> int:
    """Kill the worker, except in job 0."""
    begin(job)
    if job.number:
        os.kill(os.getpid(), signal.SIGKILL)
    return job.number


def count_bytes(common: Any, job: Job) -> int:
    """Return the size of the data that all jobs share."""
    del job
    return len(common.data)


def name_folder(job: Job) -> str:
    """Return the working folder."""
    return str(Path.cwd())


def tell_times(job: Job) -> tuple[float, float]:
    """Return when a job began and ended."""
    began = time.monotonic()
    time.sleep(0.05)
    return began, time.monotonic()


def wait_for(condition: Any) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + GO_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def python(*arguments: object) -> list[str]:
    """Return the command line of the program."""
    return [sys.executable, "-m", "seqpack_cli", *map(str, arguments)]
