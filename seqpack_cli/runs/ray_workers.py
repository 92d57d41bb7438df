"""Run tasks on a Ray cluster through a separate process that is connected to it.

Ray may end or change the process that it is connected to, so that is not this one but `ray_driver`:
if it ends, this process reports an error. It starts in 0.1 s, and a message to it takes 0.1 ms.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from seqpack_cli.runs.progress import Progress
from seqpack_cli.runs.ray_cluster import check_installed
from seqpack_cli.runs.ray_driver import END_SECONDS
from seqpack_cli.runs.ray_tasks import (
    Calls,
    Common,
    broken_connection,
    cancel,
    run_calls,
)

START = "import sys; sys.path[:] = {}; from seqpack_cli.runs.ray_driver import serve; serve({})"
_driver: _Driver | None = None  # of this process

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextlib.contextmanager
def hold_cluster(address: str | None, *, num_cores: int) -> Iterator[None]:
    """Keep a driver process connected to a cluster, unless this process is connected itself.

    Args:
        address: see `connect`.
        num_cores: of a new cluster.

    Raises:
        MachineError: Ray is not installed, no cluster answers, or none can be started.
    """
    global _driver
    check_installed()
    if _driver is not None or _is_connected():
        yield
        return
    _driver = _Driver()
    try:
        _driver.connect(address, num_cores)
        yield
    finally:
        driver, _driver = _driver, None
        driver.stop()


def run_on_ray(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_workers: int | None,
    progress: Progress,
) -> Iterator[Result]:
    """Call the function on every task, on the cluster, and yield the results as they finish.

    The first error of a task is raised and ends the others. If the caller has connected this
    process to a cluster, that connection is used.

    Args:
        num_workers: the most tasks at a time; None keeps all cores busy, new nodes included.
        progress: counts a task when it has ended, so that a repeated task counts once.

    Raises:
        WorkerDiedError: a task's worker or node died repeatedly.
        MachineError: the cluster is gone or has no cores.
    """
    run = _run_here if _driver is None else _driver.run
    done = run(Common(function), iter(tasks), num_workers, progress.on_notice)
    with contextlib.closing(done):
        for result, amount, num_tokens in done:
            progress.tell(amount, num_tokens)
            yield result


def _is_connected() -> bool:
    """Return whether the caller has connected this process, without importing Ray."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _run_here(
    common: Common, tasks: Iterator[Any], num_workers: int | None, on_notice: Callable[[str], None]
) -> Generator[Any, None, None]:
    calls: Calls = {}
    try:
        yield from run_calls(common, tasks, calls, num_workers=num_workers, on_notice=on_notice)
    finally:
        cancel(list(calls))


class _Driver:
    """The parent's side of the driver process."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            code = START.format(sys.path, theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C only reaches the parent, which ends it cleanly
            )

    def connect(self, address: str | None, num_cores: int) -> None:
        """Connect it to the cluster; raise the error that it raised there."""
        self._send((address, num_cores))
        _, error = self._receive()
        if error is not None:
            raise error

    def run(
        self,
        common: Common,
        tasks: Iterator[Any],
        num_workers: int | None,
        on_notice: Callable[[str], None],
    ) -> Generator[Any, None, None]:
        """Let it run tasks, which it requests one by one; yield what `run_calls` yields there."""
        is_idle = False
        try:
            self._send((common, num_workers))
            while True:
                kind, value = self._receive()
                if kind == "ended":
                    is_idle = True
                    if value is not None:
                        raise value
                    return
                if kind == "wanted":
                    self._send([each for each in [next(tasks, None)] if each is not None])
                elif kind == "notice":
                    on_notice(value)
                else:
                    yield value
        finally:
            if not is_idle:
                self.stop()  # its tasks must end before another run writes to the same folder

    def stop(self) -> None:
        """End it cleanly, or at once at a second Ctrl-C."""
        self._connection.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()

    def _send(self, value: object) -> None:
        with _noticing_its_end():
            self._connection.send(value)

    def _receive(self) -> Any:
        with _noticing_its_end():
            return self._connection.recv()


@contextlib.contextmanager
def _noticing_its_end() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise broken_connection() from error
