"""Run independent tasks in this process, in worker processes, or on a Ray cluster.

A task is a picklable value. Its function is defined in a module of this package, or is a
`functools.partial` of such a function that holds what all tasks share. Results are yielded as they
finish, and tasks report progress with `advance`. The bytes of a run do not depend on where that is.
A worker process imports this package and never the caller's script; it starts in 0.1 s.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from seqpack_cli.errors import MachineError, OptionError, check_choice, check_positive
from seqpack_cli.files.url import Place, is_shared
from seqpack_cli.limits import LIMITS, set_limits
from seqpack_cli.runs.arguments import check_fields

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

EXECUTORS = ("local", "ray")
RAY_END_SECONDS = 15.0  # to end the tasks, and a cluster that was started for the run
FEWER_HINT = "run the same command again with fewer workers (--num-workers 1): it continues"
START = "import sys; sys.path[:] = {}; from seqpack_cli.runs.{} import serve; serve({})"

Task = TypeVar("Task")
Result = TypeVar("Result")
Report = Callable[[int, int], None]


class WorkerDiedError(MachineError):
    """A worker process died, killed by the system or by a library that it called."""


@dataclass(frozen=True)
class Executor:
    """Where the tasks of a run are done, and how many at a time.

    Args:
        name: "local" for processes of this machine, or "ray" for a Ray cluster.
        ray_address: the cluster; None finds a running one, or starts one on this machine.
        num_workers: tasks at a time; None is one per core, or fewer if the work is not worth it. 1
            works in this process.

    Raises:
        ValueError: name is neither, or num_workers is out of range.
        OptionError: ray_address is set, and name is not "ray".
        MachineError: Ray is not installed.
    """

    name: str = "local"
    ray_address: str | None = None
    num_workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("name", self.name, EXECUTORS)
        check_positive("num_workers", self.num_workers)
        if self.name == "local" and self.ray_address is not None:
            raise OptionError("--ray-address needs --executor ray")
        if self.name == "ray" and importlib.util.find_spec("ray") is None:
            message = "ray is not installed, --executor ray needs it"
            raise MachineError(message, hint="pip install ray")


@dataclass(frozen=True)
class Progress:
    """Callbacks of a run, for a progress bar and for notices; the defaults do nothing.

    Args:
        on_total: called with the amount of work, in bytes, tokens or sequences.
        on_advance: called with the amount done since the last call.
        on_tokens: called with the tokens made since the last call.
        on_notice: called with a sentence that the user should see.
    """

    on_total: Callable[[int], None] = lambda _: None
    on_advance: Callable[[int], None] = lambda _: None
    on_tokens: Callable[[int], None] = lambda _: None
    on_notice: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        check_fields(self)

    def tell(self, amount: int, num_tokens: int) -> None:
        """Call `on_advance` and `on_tokens` with what a task reported."""
        if amount:
            self.on_advance(amount)
        if num_tokens:
            self.on_tokens(num_tokens)


_report: ContextVar[Report] = ContextVar("report", default=lambda *_: None)


def advance(amount: int, num_tokens: int = 0) -> None:
    """Report, from the thread that called a task, that an amount of its work is done."""
    _report.get()(amount, num_tokens)


def call(function: Callable[[Task], Result], task: Task, report: Report) -> Result:
    """Call a function on a task and pass what it reports with `advance` to `report`."""
    token = _report.set(report)
    try:
        return function(task)
    finally:
        _report.reset(token)


def count_cores() -> int:
    """Return the number of cores that this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Workers:
    """The workers of a run, and where they report progress; `open_workers` connects a cluster."""

    executor: Executor
    progress: Progress
    cluster: _Child | None = None

    @property
    def are_local(self) -> bool:
        """Return whether the tasks run on this machine."""
        return self.cluster is None

    def count_processes(self, num_tasks: int, max_processes: int | None = None) -> int:
        """Return how many local processes `run` would use."""
        limit = num_tasks if max_processes is None else max_processes
        asked = self.executor.num_workers or LIMITS.default_workers or count_cores()
        return min(asked, num_tasks, limit)

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        max_processes: int | None = None,
        num_threads: int = 1,
    ) -> Iterator[Result]:
        """Call the function on every task and yield the results.

        Processes and clusters yield results in the order in which they finish. One local worker, or
        one task, runs in this process. The first error stops the rest.

        Args:
            max_processes: how many local processes the work is worth; None is one per task.
            num_threads: of this process, if it does the work.

        Raises:
            WorkerDiedError: a worker process died, on a cluster repeatedly.
            MachineError: the cluster is gone or has no cores.
        """
        num_processes = self.count_processes(len(tasks), max_processes)
        if self.cluster is not None:
            yield from _run_in([self.cluster], function, tasks, self.executor, self.progress)
        elif num_processes > 1:
            yield from run_in_processes(function, tasks, num_processes, self.progress)
        elif num_threads > 1:
            yield from _run_in_threads(function, tasks, num_threads, self.progress)
        else:
            for task in tasks:
                yield call(function, task, self.progress.tell)


@contextlib.contextmanager
def open_workers(
    executor: Executor | None, progress: Progress | None, places: Iterable[str | Place]
) -> Iterator[Workers]:
    """Yield the workers of a run: only this process if it reads or writes memory://.

    Args:
        executor: None is this machine. A cluster stays connected until the block ends.
        progress: None reports nothing.
        places: all inputs and outputs of the run.

    Raises:
        OptionError: the executor is a cluster and a place is in memory://.
        MachineError: no cluster answers, it refuses this user's token, or none can be started.
    """
    executor, progress = executor or Executor(), progress or Progress()
    is_local = executor.name == "local"
    if not all(map(is_shared, places)):
        if not is_local:
            message = f"--executor {executor.name}: other processes cannot see memory://"
            raise OptionError(message, hint="use a path, s3:// or gs://")
        executor = Executor(num_workers=1)
    if is_local:
        yield Workers(executor, progress)
        return
    # Ray prints, logs, handles signals, and ends the process whose node goes away: not this one.
    with _child("ray_workers", RAY_END_SECONDS) as cluster:
        workers = Workers(executor, progress, cluster)
        list(workers.run(len, []))  # connects
        yield workers


def run_in_processes(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_processes: int,
    progress: Progress,
) -> Iterator[Result]:
    """Call the function on every task in worker processes and yield the results as they finish.

    Raises:
        WorkerDiedError: a worker process died.
    """
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_child("workers", 0)) for _ in range(num_processes)]
        yield from _run_in(children, function, tasks, Executor(), progress)


class _StoppedError(Exception):
    """The caller of a thread's run has left; nobody sees this error."""


def _run_in_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], num_threads: int, progress: Progress
) -> Iterator[Result]:
    """Yield the results in the tasks' order, for work that does not hold Python's lock.

    The error is that of the first task that fails, whichever thread is faster.
    """
    from concurrent.futures import ThreadPoolExecutor

    lock, stopped = threading.Lock(), threading.Event()

    def report(amount: int, num_tokens: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        with lock:
            progress.tell(amount, num_tokens)

    pool = ThreadPoolExecutor(num_threads)
    try:
        yield from pool.map(lambda task: call(function, task, report), tasks)
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


# Child processes: what they have in common is the pipe. A child asks for a task, and is sent None
# after the last one. It sends "progress", "notice", "done" with a result, "error", and "ended".


@dataclass
class _Child:
    """The parent's side of a child process."""

    connection: Connection
    is_cluster: bool
    task: Any = None  # the last one that it was sent

    @contextlib.contextmanager
    def alive(self) -> Iterator[Connection]:
        try:
            yield self.connection
        except (EOFError, OSError) as error:
            if self.is_cluster:
                raise lost_cluster() from error
            if self.task is None:
                raise MachineError("a worker process could not start") from error
            raise WorkerDiedError(
                f"a worker process died while working on: {self.task}",
                hint=FEWER_HINT,
            ) from error

    def send(self, message: Any) -> None:
        with self.alive() as connection:
            connection.send(message)

    def receive(self) -> tuple[str, Any]:
        with self.alive() as connection:
            message: tuple[str, Any] = connection.recv()
            return message


@contextlib.contextmanager
def _child(module: str, end_seconds: float) -> Iterator[_Child]:
    """Start a child process, which ends with this block and with this process."""
    import subprocess
    from multiprocessing import Pipe

    is_cluster = module == "ray_workers"
    ours, theirs = Pipe()
    with theirs:
        code = START.format(sys.path, module, theirs.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_cluster else None,
            stderr=subprocess.DEVNULL if is_cluster else None,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C only reaches this process, which ends the others
        )
    try:
        yield _Child(ours, is_cluster)
    finally:
        ours.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(end_seconds)
        finally:
            process.kill()
            process.wait()


def _run_in(
    children: Sequence[_Child],
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: Executor,
    progress: Progress,
) -> Iterator[Result]:
    from multiprocessing.connection import wait

    waiting = iter(tasks)
    running: dict[Any, _Child] = {child.connection: child for child in children}
    for child in children:
        child.send((function, LIMITS, executor))
    while running:
        ready: list[Any] = wait(list(running))
        for connection in ready:
            child = running[connection]
            kind, value = child.receive()
            if kind == "ask":
                child.task = next(waiting, None)
                child.send(child.task)
            elif kind == "progress":
                progress.tell(*value)
            elif kind == "notice":
                progress.on_notice(value)
            elif kind == "done":
                yield value
            elif kind == "ended":
                del running[connection]
            else:
                with contextlib.suppress(MachineError):  # a cluster ends its other tasks first
                    while child.receive()[0] != "ended":
                        pass
                raise value


def lost_cluster() -> MachineError:
    """Return the error about a lost connection to the cluster."""
    return MachineError(
        "lost the connection to the Ray cluster: its node or its head node is gone",
        hint="run the same command again when 'ray status' answers: it continues",
    )


class Parent:
    """The child's side: the pipe to the parent, without which the child ends."""

    def __init__(self, pipe: int, end_seconds: float = 0) -> None:
        from multiprocessing.connection import Connection

        self._connection = Connection(pipe)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_gone = False
        threading.Thread(target=self._read, args=(end_seconds,), daemon=True).start()

    def _read(self, end_seconds: float) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._inbox.put(self._connection.recv())
        self._is_gone = True
        self._inbox.put(None)
        threading.Event().wait(end_seconds)
        os._exit(1)  # in the middle of a task, or of a call of Ray that hangs

    def check(self) -> None:
        """Raise SystemExit if the parent is gone."""
        if self._is_gone:
            sys.exit(1)

    def receive(self) -> Any:
        """Return the next message of the parent."""
        message = self._inbox.get()
        self.check()
        return message

    def ask(self) -> Any:
        """Return the next task, None after the last one."""
        self.send("ask", None)
        return self.receive()

    def send(self, kind: str, value: Any) -> None:
        """Send a message to the parent."""
        self._connection.send((kind, value))

    def serve(
        self,
        run: Callable[..., Generator[tuple[str, Any], None, None]],
        clean_up: Callable[[], None] = lambda: None,
    ) -> NoReturn:
        """Run tasks until the parent is gone.

        Args:
            run: takes the function, limits and executor, and yields messages.
            clean_up: is called after a run, whatever became of it.
        """
        while True:
            try:
                for message in run(*self.receive()):
                    self.send(*message)
            except Exception as error:
                error.add_note(traceback.format_exc())
                self.send("error", error)
            clean_up()
            self.send("ended", None)


def serve(pipe: int) -> None:
    """Do tasks in a worker process, one at a time."""
    parent = Parent(pipe)

    def report(amount: int, num_tokens: int) -> None:
        parent.send("progress", (amount, num_tokens))

    def run(function: Any, limits: Any, _: Executor) -> Generator[tuple[str, Any], None, None]:
        set_limits(limits)
        while (task := parent.ask()) is not None:
            yield "done", call(function, task, report)

    parent.serve(run)
