"""Tasks in spawned processes of this machine, which end with the run and with their parent.

Spawned, never forked: a fork after the tokenizer's threads started can deadlock. A worker that dies
is named with the tasks it may have held, and what other workers had finished stays.
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
from seqpack_cli.runs.progress import Progress, report_to

WATCH_SECONDS = 0.2

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerDiedError(MachineError):
    """A worker process was ended, by the system or by a library it called."""


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
    others = set(multiprocessing.active_children())
    # Amount and tokens of each worker, without a lock: one that is killed can leave none behind.
    counts = context.RawArray("Q", 2 * num_processes)
    places = context.SimpleQueue()
    for place in range(num_processes):
        places.put(place)
    pool = ProcessPoolExecutor(
        num_processes, mp_context=context, initializer=_start_worker, initargs=(counts, places)
    )
    finished = False
    try:
        yield from _run_in_pool(pool, function, tasks, num_processes, _Watch(counts, progress))
        finished = True
    finally:
        if not finished:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


class _Watch:
    """Tells a progress what workers counted since the last look."""

    def __init__(self, counts: Any, progress: Progress) -> None:
        self._counts = counts
        self._progress = progress
        self._seen = (0, 0)

    def look(self) -> None:
        """Report what is new."""
        amount, num_tokens = sum(self._counts[::2]), sum(self._counts[1::2])
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
            if not running:
                return
            done, _ = wait(running, timeout=WATCH_SECONDS, return_when=FIRST_COMPLETED)
            watch.look()
            for future in done:
                yield future.result()
                del running[future]
    except BrokenProcessPool as error:
        raise WorkerDiedError(
            f"a worker process died while working on one of: {join_items(running.values())}",
            hint="run the same command again with fewer workers (--num-workers 1): it continues",
        ) from error


@contextmanager
def _holding_back_sigint() -> Iterator[None]:
    """Start workers with SIGINT held back: Ctrl-C while one starts would end in its traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(counts: Any, places: Any) -> None:
    place = 2 * places.get()

    def report(amount: int, num_tokens: int) -> None:
        counts[place] += amount
        counts[place + 1] += num_tokens

    report_to(report)
    # Ctrl-C reaches the whole process group: a worker ends silently, the parent says it once. Where
    # it is ignored, as under nohup, it stays so.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # held back until here
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is killed; it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
