"""Run independent tasks on a Ray cluster: one Ray task each, made again where a node was lost.

Ray plans, retries and moves the bytes; here is what one run means on it. What all tasks have in
common goes to each node once, not with each task. A worker calls the same function as a local one,
in the driver's folder where its node has that too, and only if its seqpack is of the same version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import seqpack_cli
from seqpack_cli.errors import MachineError
from seqpack_cli.progress import Progress, reporting_to, tell
from seqpack_cli.spawned_workers import WorkerDiedError

MAX_RETRIES = 3  # of a task whose worker or node is lost; an error of the task itself is final
TASKS_PER_CORE = 4  # in flight, so that a core that is free, or new, finds one waiting
WATCH_SECONDS = 0.2
STOP_SECONDS = 3.0

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Common:
    """What all tasks of a run have in common."""

    function: Callable[[Any], Any]
    kind: Callable[..., Any] | None  # makes a task of its fields; None: it was sent whole
    fields: dict[str, Any]
    version: str
    folder: str


def run_on_ray(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    num_workers: int | None,
    progress: Progress,
    ends_with_us: bool = False,
) -> Iterator[Result]:
    """Call the function on every task, on the cluster, and yield the results as they finish.

    A first error cancels the rest; it is the one that the task raised.

    Args:
        function: a module's own.
        num_workers: tasks in flight at most; None keeps all cores busy, new ones too.
        progress: hears of a task when it has ended, so that one made again counts once.
        ends_with_us: the connection is ended at once after an error, and all tasks with it.

    Raises:
        WorkerDiedError: a task killed its worker, or lost its node, again and again.
    """
    import ray

    call = ray.remote(
        num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD"
    )(_call)
    common, names = _find_common(function, tasks)
    shared = ray.put(common)
    waiting = iter(tasks)
    running: dict[Any, Task] = {}
    try:
        while True:
            limit = num_workers or _count_places()
            while len(running) < limit and (task := next(waiting, None)) is not None:
                running[call.remote(shared, _take_own(task, names))] = task
            if not running:
                return
            for reference in _wait_for_some(list(running)):
                result, amount, num_tokens = _fetch(reference, running.pop(reference))
                tell(progress, amount, num_tokens)
                yield result
    finally:
        if not ends_with_us:
            _cancel(list(running))


def _wait_for_some(references: list[Any]) -> list[Any]:
    """Give all that have ended, as soon as one has: a look at thousands takes 10 ms."""
    import ray

    done, _ = ray.wait(references, num_returns=1, timeout=WATCH_SECONDS)
    if done:
        done, _ = ray.wait(references, num_returns=len(references), timeout=0)
    return list(done)


def _count_places() -> int:
    import ray

    return max(1, TASKS_PER_CORE * int(ray.cluster_resources().get("CPU", 0)))


def _find_common(
    function: Callable[[Task], Result], tasks: Sequence[Task]
) -> tuple[_Common, list[str] | None]:
    """Find the fields that are one object in all tasks; give them, and the names of the others."""
    version, folder = seqpack_cli.__version__, os.getcwd()  # noqa: PTH109
    first = next(iter(tasks), None)
    if not dataclasses.is_dataclass(first):
        return _Common(function, None, {}, version, folder), None
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(first)}
    same = {
        name: value
        for name, value in fields.items()
        if all(getattr(task, name) is value for task in tasks)
    }
    names = [name for name in fields if name not in same]
    return _Common(function, type(first), same, version, folder), names


def _take_own(task: Task, names: list[str] | None) -> Any:
    return task if names is None else {name: getattr(task, name) for name in names}


def _call(common: _Common, own: Any) -> tuple[Any, int, int]:
    """Do one task, in a worker; give its result, and the sums of what it said."""
    if seqpack_cli.__version__ != common.version:
        raise MachineError(
            f"{platform.node()}: has seqpack {seqpack_cli.__version__},"
            f" expected {common.version} as where the run was started",
            hint=f"pip install 'seqpack[ray]=={common.version}' on every node",
        )
    with contextlib.suppress(OSError):  # a node that lacks the folder can only take whole paths
        os.chdir(common.folder)
    task = own if common.kind is None else common.kind(**common.fields, **own)
    amounts: list[tuple[int, int]] = [(0, 0)]
    with reporting_to(lambda amount, num_tokens: amounts.append((amount, num_tokens))):
        result = common.function(task)
    amount, num_tokens = map(sum, zip(*amounts, strict=True))
    return result, amount, num_tokens


def _fetch(reference: Any, task: object) -> Any:
    """Give the result of a task, or raise what it raised."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise WorkerDiedError(
            f"a Ray worker or its node died {1 + MAX_RETRIES} times while it held: {task}"
            f" ({type(error).__name__})",
            hint="run the same command again with fewer workers (--num-workers 1): it continues",
        ) from error


def _cancel(references: list[Any]) -> None:
    """End tasks that nobody waits for; what they write could meet what is written next.

    Short ones end by themselves first: Ray 2.60 breaks off its whole process, now and then, where a
    task that is cancelled is just ending.
    """
    import ray

    for cancel in (None, {"force": False}, {"force": True}):
        if not references:
            return
        for reference in references:
            if cancel is not None:
                ray.cancel(reference, **cancel)
        _, references = ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
