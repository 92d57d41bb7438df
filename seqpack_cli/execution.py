"""Run independent tasks, in this process or in spawned worker processes.

A task is a picklable value, the function a module's own; results come back as they finish. The
processes are spawned, never forked: a fork after the tokenizer's threads started can deadlock.
A worker that dies is named with the tasks it may have held, what other workers had finished stays,
and workers do not outlive their parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from seqpack_cli.errors import MachineError, join_items

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Progress:
    """Callbacks of a run, for a bar and for notices; the defaults keep silent."""

    on_total: Callable[[int], None] = lambda _: None
    on_advance: Callable[[int], None] = lambda _: None
    on_notice: Callable[[str], None] = lambda _: None


def count_cores() -> int:
    """Give the cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, num_workers: int
) -> Iterator[Result]:
    """Call the function on every task and yield the results in the order they finish.

    One worker, or one task, runs in this process. A first error stops the rest.

    Raises:
        MachineError: a worker process died.
    """
    num_processes = min(num_workers, len(tasks))
    if num_processes <= 1:
        yield from map(function, tasks)
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_start_worker)
    finished = False
    try:
        yield from _run_in_pool(pool, function, tasks, num_processes)
        finished = True
    finally:
        if not finished:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


def _run_in_pool(
    pool: ProcessPoolExecutor,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_processes: int,
) -> Iterator[Result]:
    waiting = iter(tasks)
    running: dict[Future[Any], Task] = {}
    try:
        while True:
            while len(running) < num_processes and (task := next(waiting, None)) is not None:
                running[pool.submit(function, task)] = task
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                del running[future]
    except BrokenProcessPool as error:
        raise MachineError(
            f"a worker process died while it held one of: {join_items(running.values())}",
            hint="run the same command again with fewer workers (--num-workers 1): it continues",
        ) from error


def _start_worker() -> None:
    # Ctrl-C reaches the whole process group: a worker ends silently, the parent says it once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is killed; it would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
