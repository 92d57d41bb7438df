"""Run independent tasks: in this process, in spawned worker processes, or on a Ray cluster.

A task is a picklable value, the function a module's own; results come back as they finish. The
function of a task is the same wherever it runs, and so are the bytes it writes. A task says how far
it is with `advance`, which reaches the caller from wherever it runs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from seqpack_cli.errors import OptionError, check_choice
from seqpack_cli.runs.progress import Progress, reporting_to, tell
from seqpack_cli.runs.ray_cluster import check_installed
from seqpack_cli.runs.spawned_workers import WorkerDiedError as WorkerDiedError
from seqpack_cli.runs.spawned_workers import run_in_processes

EXECUTORS = ("local", "ray")

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Executor:
    """Where tasks run: in processes of this machine, or on a Ray cluster.

    Raises:
        MachineError: Ray is not installed.
    """

    name: str = "local"  # one of EXECUTORS
    ray_address: str | None = None  # None finds a running cluster, or starts one here

    def __post_init__(self) -> None:
        check_choice("executor", self.name, EXECUTORS)
        if self.name == "ray":
            check_installed()

    def keep_here(self) -> int:
        """Give the one process that may do what no other can see.

        Raises:
            OptionError: it is a cluster that should.
        """
        if self.name != "local":
            raise OptionError(
                f"--executor {self.name}: no other process sees what is in memory://",
                hint="name a path, s3:// or gs://",
            )
        return 1


def count_cores() -> int:
    """Give the cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int | None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    isolated: bool = False,
) -> Iterator[Result]:
    """Call the function on every task and yield the results in the order they finish.

    One local worker, or one task, runs in this process. A first error stops the rest.

    Args:
        num_workers: None takes one a core, of this machine or of the cluster.
        progress: hears of what tasks say with `advance`; from a cluster, when a task has ended.
        executor: where the tasks run; None is this machine.
        isolated: never in this process, since a task may end the process that it runs in; always
            on this machine.

    Raises:
        WorkerDiedError: a worker process died, on a cluster again and again.
        MachineError: no cluster answers.
    """
    progress = progress or Progress()
    if executor is not None and executor.name == "ray" and not isolated:
        yield from _run_on_ray(function, tasks, num_workers, executor, progress)
        return
    num_processes = min(num_workers or count_cores(), len(tasks))
    if num_processes == 0 or (num_processes == 1 and not isolated):
        yield from _run_here(function, tasks, progress)
        return
    yield from run_in_processes(function, tasks, num_processes=num_processes, progress=progress)


@contextmanager
def hold_executor(executor: Executor, *, num_workers: int | None) -> Iterator[None]:
    """Stay connected to a cluster over several `run_tasks`; processes need no connection.

    Raises:
        MachineError: no cluster answers.
    """
    if executor.name != "ray":
        yield
        return
    from seqpack_cli.runs.ray_runs import hold_cluster

    num_cores = num_workers or count_cores()
    with hold_cluster(executor.ray_address, num_cores=num_cores):
        yield


def _run_here(
    function: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress
) -> Iterator[Result]:
    with reporting_to(functools.partial(tell, progress)):
        yield from map(function, tasks)


def _run_on_ray(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    num_workers: int | None,
    executor: Executor,
    progress: Progress,
) -> Iterator[Result]:
    from seqpack_cli.runs.ray_runs import run_on_ray

    if tasks:
        with hold_executor(executor, num_workers=num_workers):
            yield from run_on_ray(function, tasks, num_workers=num_workers, progress=progress)
