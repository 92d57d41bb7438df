"""Run independent tasks: in this process, in spawned worker processes, or on a Ray cluster.

A task is a picklable value; the function is a module's own, or a `functools.partial` of one that
holds what all tasks have in common. Results come back as they finish, and tasks say how far they
are with `advance`. The function is the same wherever it runs, and so are the bytes it writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from seqpack_cli.errors import OptionError, check_choice, check_positive
from seqpack_cli.files.url import Place, is_shared
from seqpack_cli.runs.arguments import check_fields
from seqpack_cli.runs.progress import Progress, reporting_to
from seqpack_cli.runs.ray_cluster import check_installed
from seqpack_cli.runs.spawned_workers import check_not_importing, run_in_processes

EXECUTORS = ("local", "ray")

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Executor:
    """Where the tasks of a run are done, and how many at a time.

    Raises:
        ValueError: there is no such executor, or num_workers is below 1.
        MachineError: Ray is not installed.
    """

    name: str = "local"  # in processes of this machine; "ray": on a Ray cluster
    ray_address: str | None = None  # None finds a running cluster, or starts one here
    num_workers: int | None = None  # None is one a core, or fewer where the work is not worth it

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("name", self.name, EXECUTORS)
        check_positive("num_workers", self.num_workers)
        if self.name == "ray":
            check_installed()


@dataclass(frozen=True)
class Workers:
    """The workers of a run, and who hears how far they are."""

    executor: Executor
    progress: Progress

    @property
    def are_local(self) -> bool:
        """Whether they are processes of this machine."""
        return self.executor.name == "local"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stay connected to a cluster over several `run`; processes need no connection.

        Raises:
            MachineError: no cluster answers.
        """
        if self.are_local:
            yield
            return
        from seqpack_cli.runs.ray_workers import hold_cluster

        num_cores = self.executor.num_workers or count_cores()
        with hold_cluster(self.executor.ray_address, num_cores=num_cores):
            yield

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        max_processes: int | None = None,
    ) -> Iterator[Result]:
        """Call the function on every task and yield the results in the order they finish.

        One local worker, or one task, runs in this process. A first error stops the rest. From a
        cluster the progress hears of a task when it has ended.

        Args:
            max_processes: what the work is worth on this machine; None is a process for each task.

        Raises:
            WorkerDiedError: a worker process died, on a cluster again and again.
            MachineError: no cluster answers.
        """
        num_workers, progress = self.executor.num_workers, self.progress
        limit = len(tasks) if max_processes is None else max_processes
        num_processes = min(num_workers or count_cores(), len(tasks), limit)
        if not self.are_local and tasks:
            from seqpack_cli.runs.ray_workers import run_on_ray

            with self.hold():
                yield from run_on_ray(function, tasks, num_workers, progress)
        elif num_processes > 1:
            yield from run_in_processes(function, tasks, num_processes, progress)
        else:
            with reporting_to(progress.tell):
                yield from map(function, tasks)


def find_workers(
    executor: Executor | None, progress: Progress | None, places: Iterable[str | Place]
) -> Workers:
    """Return the workers of a run; in memory:// that is the one process which sees it.

    Args:
        executor: None is this machine.
        progress: None keeps silent.
        places: all that the run reads and writes.

    Raises:
        OptionError: a cluster should work in memory://.
    """
    check_not_importing()
    executor = executor or Executor()
    if not all(map(is_shared, places)):
        if executor.name != "local":
            raise OptionError(
                f"--executor {executor.name}: other processes cannot see memory://",
                hint="use a path, s3:// or gs://",
            )
        executor = Executor(num_workers=1)
    return Workers(executor, progress or Progress())


def count_cores() -> int:
    """Return the cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
