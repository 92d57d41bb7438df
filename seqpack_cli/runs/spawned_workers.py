"""Run tasks in spawned processes of this machine, which end with the run and with their parent.

Processes are spawned, never forked: a fork after the tokenizer started threads can deadlock. If a
worker dies, the error names the tasks that were running; what others have finished stays.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from seqpack_cli.errors import MachineError, join_items
from seqpack_cli.limits import LIMITS, Limits, set_limits
from seqpack_cli.runs.progress import Progress, report_to

WATCH_SECONDS = 0.2
GUARD_HINT = 'put the call under `if __name__ == "__main__":`, since each worker imports the script'

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerDiedError(MachineError):
    """A worker process died, killed by the system or by a library that it called."""


def check_not_importing() -> None:
    """Raise RuntimeError in a worker that is still importing the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(f"a worker process must not start a run: {GUARD_HINT}")


def run_in_processes(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_processes: int,
    progress: Progress,
) -> Iterator[Result]:
    """Call the function on every task and yield the results as they finish.

    Raises:
        WorkerDiedError: a worker process died.
    """
    context = multiprocessing.get_context("spawn")
    # Amount and tokens of each worker, and whether it began, without a lock, which a killed worker
    # would never release.
    counts = context.RawArray("Q", 3 * num_processes)
    watch = _Watch(counts, progress)
    places = context.SimpleQueue()
    for place in range(num_processes):
        places.put(place)
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=context,
        initializer=_start_worker,
        initargs=(counts, places, LIMITS),
    )
    finished = False
    try:
        yield from _run_in_pool(pool, function, tasks, num_processes, watch)
        finished = True
    finally:
        if not finished:
            for process in watch.find_processes():
                process.terminate()
        pool.shutdown(cancel_futures=True)


class _Watch:
    """Watches the workers, and reports to a Progress what they counted since the last look."""

    def __init__(self, counts: Any, progress: Progress) -> None:
        self._counts = counts
        self._progress = progress
        self._seen = (0, 0)
        self._others = set(multiprocessing.active_children())
        self._processes: set[Any] = set()  # those that have ended too

    def find_processes(self) -> set[Any]:
        """Return all workers that were ever seen running."""
        self._processes |= set(multiprocessing.active_children()) - self._others
        return self._processes

    def has_failed_to_begin(self) -> bool:
        """Return whether a worker ended with an error before any worker had begun."""
        codes = [process.exitcode for process in self.find_processes()]
        return not any(self._counts[2::3]) and any(code is not None and code > 0 for code in codes)

    def look(self) -> None:
        """Report what was counted since the last call."""
        amount, num_tokens = sum(self._counts[::3]), sum(self._counts[1::3])
        self._progress.tell(amount - self._seen[0], num_tokens - self._seen[1])
        self._seen = (amount, num_tokens)


def _run_in_pool(
    pool: ProcessPoolExecutor,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_processes: int,
    watch: _Watch,
) -> Iterator[Result]:
    waiting = iter(tasks)
    running: dict[Future[Any], Task] = {}
    try:
        while True:
            while len(running) < num_processes and (task := next(waiting, None)) is not None:
                with _holding_back_sigint():
                    running[pool.submit(function, task)] = task
                watch.find_processes()
            if not running:
                return
            done, _ = wait(running, timeout=WATCH_SECONDS, return_when=FIRST_COMPLETED)
            watch.look()
            for future in done:
                yield future.result()
                del running[future]
    except BrokenProcessPool as error:
        pool.shutdown()  # waits for the workers: one that is still ending has no exit code
        if watch.has_failed_to_begin():
            raise WorkerDiedError("the worker processes could not start", GUARD_HINT) from error
        raise WorkerDiedError(
            f"a worker process died while working on one of: {join_items(running.values())}",
            hint="run the same command again with fewer workers (--num-workers 1): it continues",
        ) from error


@contextmanager
def _holding_back_sigint() -> Iterator[None]:
    """Block SIGINT while workers start: Ctrl-C would end in a traceback of a worker."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(counts: Any, places: Any, limits: Limits) -> None:
    set_limits(limits)
    place = 3 * places.get()
    counts[place + 2] = 1

    def report(amount: int, num_tokens: int) -> None:
        counts[place] += amount
        counts[place + 1] += num_tokens

    report_to(report)
    # Ctrl-C reaches the whole process group: workers end silently, and the parent reports it once.
    # If SIGINT is ignored, as under nohup, it stays ignored.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is killed; otherwise it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
