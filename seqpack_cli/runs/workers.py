"""Run independent tasks in this process, in spawned worker processes, or on a Ray cluster.

A task is a picklable value. The function is defined in a module, or a `functools.partial` of such a
function that holds what all tasks share. Results are yielded as they finish; tasks report progress
with `advance`. The output bytes do not depend on where the function runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from seqpack_cli.errors import OptionError
from seqpack_cli.files.places import Place, is_shared
from seqpack_cli.limits import LIMITS
from seqpack_cli.runs.executor import Executor, count_cores
from seqpack_cli.runs.progress import Progress, reporting_to
from seqpack_cli.runs.spawned_workers import check_not_importing, run_in_processes
from seqpack_cli.runs.worker_threads import run_in_threads

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workers:
    """The workers of a run, and where they report progress."""

    executor: Executor
    progress: Progress

    @property
    def are_local(self) -> bool:
        """Return whether the tasks run on this machine."""
        return self.executor.name == "local"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Stay connected to a Ray cluster for several calls of `run`.

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
        """Call the function on every task and yield the results in the order they finish.

        One local worker, or one task, runs in this process. The first error stops the rest. Tasks
        on a cluster report their progress when they end.

        Args:
            max_processes: how many local processes the work is worth; None is one per task.
            num_threads: of this process, if it does the work.

        Raises:
            WorkerDiedError: a worker process died, on a cluster repeatedly.
            MachineError: no cluster answers.
        """
        num_workers, progress = self.executor.num_workers, self.progress
        num_processes = self.count_processes(len(tasks), max_processes)
        if not self.are_local and tasks:
            from seqpack_cli.runs.ray_workers import run_on_ray

            with self.hold():
                yield from run_on_ray(function, tasks, num_workers, progress)
        elif num_processes > 1:
            yield from run_in_processes(function, tasks, num_processes, progress)
        elif num_threads > 1:
            yield from run_in_threads(function, tasks, num_threads, progress)
        else:
            with reporting_to(progress.tell):
                yield from map(function, tasks)


def find_workers(
    executor: Executor | None, progress: Progress | None, places: Iterable[str | Place]
) -> Workers:
    """Return the workers of a run; only this process if it reads or writes memory://.

    Args:
        executor: None is this machine.
        progress: None reports nothing.
        places: all inputs and outputs of the run.

    Raises:
        OptionError: the executor is a cluster and a place is in memory://.
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
