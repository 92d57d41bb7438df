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
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from seqpack_cli.errors import MachineError, OptionError, check_choice
from seqpack_cli.limits import LIMITS, Limits, set_limits
from seqpack_cli.runs.options import RUN, check_options, option

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


EXECUTORS = ("local", "ray")
END_SECONDS = 15.0  # of Ray, to end tasks, and a cluster that was started for the run
FEWER_HINT = "run the same command again with fewer workers (--num-workers 1): it continues"
START = "import sys; sys.path[:] = {}; from seqpack_cli.runs.{} import serve; serve({})"

# In a worker the libraries that tokenize have one thread: there is a worker for each core.
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "FASTOKENS_BPE_THREADS": "1"}

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
    ray_address: str | None = option(
        None,
        "Ray cluster to connect to.",
        RUN,
        metavar="HOST:PORT",
        shown="RAY_ADDRESS, else one on this machine",
    )
    num_workers: int | None = option(
        None, "Number of worker processes.", RUN, kind="count", shown="number of CPU cores"
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_choice("name", self.name, EXECUTORS)
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
        check_options(self)

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
    cluster: Connection | None = None

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
    executor: Executor | None, progress: Progress | None, places: Iterable[Any]
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
    from seqpack_cli.files.places import is_shared

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
    with _child("ray_workers") as cluster:
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
        children = [stack.enter_context(_child("workers")) for _ in range(num_processes)]
        yield from _run_in(children, function, tasks, Executor(), progress)


def _run_in_threads(
    function: Callable[[Task], Result], tasks: Sequence[Task], num_threads: int, progress: Progress
) -> Iterator[Result]:
    """Yield the results in the tasks' order, for work that does not hold Python's lock.

    The error is that of the first task that fails, whichever thread is faster.
    """
    from concurrent.futures import CancelledError, ThreadPoolExecutor

    lock, stopped = threading.Lock(), threading.Event()

    def report(amount: int, num_tokens: int) -> None:
        if stopped.is_set():
            raise CancelledError
        with lock:
            progress.tell(amount, num_tokens)

    with ThreadPoolExecutor(num_threads) as pool:
        try:
            yield from pool.map(lambda task: call(function, task, report), tasks)
        finally:
            stopped.set()  # `map` cancels the tasks that have not begun


# Child processes. The parent sends the function, limits and executor, and a task for each "ask",
# None after the last one. A child sends "ask", "progress", "notice", "done" with a result, at most
# one "error", and "ended" when the parent may send the next function.


@contextlib.contextmanager
def _child(module: str) -> Iterator[Connection]:
    """Start a child process, which ends with this block and with this process."""
    import subprocess
    from multiprocessing import Pipe

    is_cluster = module == "ray_workers"
    printed = subprocess.DEVNULL if is_cluster else None
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", START.format([*map(str, sys.path)], module, theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C only reaches this process, which ends the others
        )
    try:
        yield ours
    finally:
        ours.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS if is_cluster else 0)
        finally:
            process.kill()
            process.wait()


def _run_in(
    children: Sequence[Connection],
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: Executor,
    progress: Progress,
) -> Iterator[Result]:
    from multiprocessing.connection import wait

    waiting, failure = iter(tasks), None
    held: dict[Any, Any] = dict.fromkeys(children)  # the last task of each
    child: Any
    for child in held:
        with contextlib.suppress(OSError):  # it has died, as `recv` says
            child.send((function, LIMITS, executor))
    while held:
        for child in wait(list(held)):
            try:
                kind, value = child.recv()
                if kind == "ask":
                    held[child] = next(waiting, None)
                    child.send(held[child])
            except (EOFError, OSError) as error:
                raise failure or _name_death(executor, held[child]) from error
            if kind == "progress":
                progress.tell(*value)
            elif kind == "notice":
                progress.on_notice(value)
            elif kind == "done":
                yield value
            elif kind == "error":
                failure = value
            elif kind == "ended":
                del held[child]
                if failure is not None:
                    raise failure


def _name_death(executor: Executor, task: Any) -> MachineError:
    """Return the error about a child process that died."""
    if executor.name == "ray":
        return MachineError(
            "lost the connection to the Ray cluster: its node or its head node is gone",
            hint="run the same command again when 'ray status' answers: it continues",
        )
    if task is None:
        return MachineError("a worker process died while it started", FEWER_HINT)
    return WorkerDiedError(f"a worker process died while working on: {task}", FEWER_HINT)


class Parent:
    """The pipe to the parent of a child process, which is told to end when the parent is gone."""

    def __init__(self, pipe: int) -> None:
        import queue
        from multiprocessing.connection import Connection

        self._connection = Connection(pipe)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                self._inbox.put(self._connection.recv())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(END_SECONDS)
            os._exit(1)  # Ray hangs if a node has stopped responding

    def ask(self) -> Any:
        """Return the next task, None after the last one."""
        self.send("ask", None)
        return self._inbox.get()

    def send(self, kind: str, value: Any) -> None:
        """Send a message to the parent; end if it is gone."""
        try:
            self._connection.send((kind, value))
        except BrokenPipeError:
            raise SystemExit(1) from None

    def serve(
        self,
        run: Callable[..., Iterator[tuple[str, Any]]],
        clean_up: Callable[[], None] = lambda: None,
    ) -> NoReturn:
        """Send the parent what `run` yields for each function, limits and executor it sends."""
        import traceback

        while True:
            try:
                for message in run(*self._inbox.get()):
                    self.send(*message)
            except Exception as error:
                error.add_note(traceback.format_exc())
                self.send("error", error)
            clean_up()
            self.send("ended", None)


def serve(pipe: int) -> None:
    """Do tasks in a worker process, one at a time."""
    os.environ.update(ENVIRONMENT)
    parent = Parent(pipe)

    def run(function: Any, limits: Limits, _: Executor) -> Iterator[tuple[str, Any]]:
        set_limits(limits)
        while (task := parent.ask()) is not None:
            yield "done", call(function, task, lambda *done: parent.send("progress", done))

    parent.serve(run)
