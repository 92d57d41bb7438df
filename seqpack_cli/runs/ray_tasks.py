"""Run independent tasks on a Ray cluster: one Ray task each, made again where a node was lost.

Ray plans, retries and moves the bytes; here is what one run means on it. The function, and all that
is bound to it, goes to each node once, not with each task. A worker calls it as a local one does,
in the driver's folder where its node has that too, and only if its seqpack is of the same version.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqpack_cli.errors import MachineError
from seqpack_cli.runs.progress import reporting_to
from seqpack_cli.runs.spawned_workers import WorkerDiedError
from seqpack_cli.runs.version import __version__

MAX_RETRIES = 3  # of a task whose worker or node is lost; an error of the task itself is final
TASKS_PER_CORE = 4  # in flight, so that a core that is free, or new, finds one waiting
WATCH_SECONDS = 0.2
STOP_SECONDS = 3.0
NO_IMPORT = "failed to import on the worker"  # Ray's words for a module that a worker lacks
CANCEL_WAYS = (None, {"force": False}, {"force": True})  # one after the other
WAIT_SECONDS = 600.0  # for a first core: an autoscaler takes minutes
SAME_VERSION_HINT = "on every node, in a clone of seqpack {}: pip install '.[ray]'"


@dataclass(frozen=True)
class Common:
    """What all tasks of a run have in common; `function` holds it where they share more."""

    function: Callable[[Any], Any]
    version: str = field(default_factory=lambda: __version__)
    folder: str = field(default_factory=os.getcwd)


Calls = dict[Any, Any]  # tasks, by the references to their results


def run_calls(
    common: Common,
    tasks: Iterator[Any],
    calls: Calls,
    *,
    num_workers: int | None,
    on_notice: Callable[[str], None],
) -> Iterator[tuple[Any, int, int]]:
    """Run tasks on the cluster; yield the result of each, and the sums of what it said.

    Args:
        common: what they have in common.
        tasks: taken when there is a place for one.
        calls: holds those in flight, also after an error: `cancel` ends them.
        num_workers: tasks in flight at most; None keeps all cores busy, new ones too.
        on_notice: hears that the cluster has no cores.

    Raises:
        WorkerDiedError: a task killed its worker, or lost its node, again and again.
        MachineError: the cluster has no cores, or fails.
    """
    import ray
    from ray.exceptions import RayError

    call = ray.remote(
        num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD"
    )(_call)
    cores = _Cores(on_notice)
    try:
        shared = ray.put(common)
        while True:
            limit = max(1, num_workers or TASKS_PER_CORE * cores.count())
            while len(calls) < limit and (task := next(tasks, None)) is not None:
                calls[call.remote(shared, task)] = task
            if not calls:
                return
            for reference in _wait_for_some(list(calls)):
                yield _fetch(reference, common, calls.pop(reference))
    except RayError as error:
        raise broken_connection() from error


def _wait_for_some(references: list[Any]) -> list[Any]:
    """Give all that have ended, as soon as one has: a look at thousands takes 10 ms."""
    import ray

    done, _ = ray.wait(references, num_returns=1, timeout=WATCH_SECONDS)
    if done:
        done, _ = ray.wait(references, num_returns=len(references), timeout=0)
    return list(done)


class _Cores:
    """The cores of the cluster, which may come and go, and how long there have been none."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._none_since: float | None = None

    def count(self) -> int:
        """Count them now; one that has none may get some, which is waited for."""
        import ray

        found = int(ray.cluster_resources().get("CPU", 0))
        if found:
            self._none_since = None
        elif self._none_since is None:
            self._none_since = time.monotonic()
            self._on_notice(
                f"the Ray cluster has no CPU; waiting up to {WAIT_SECONDS:.0f} s for a node"
            )
        elif time.monotonic() > self._none_since + WAIT_SECONDS:
            raise MachineError(
                f"the Ray cluster has had no CPU for {WAIT_SECONDS:.0f} s",
                hint="start a node with CPUs: ray start --address HOST:PORT --num-cpus 8",
            )
        return found


def _call(common: Common, task: Any) -> tuple[Any, int, int]:
    """Do one task, in a worker; give its result, and the sums of what it said."""
    if common.version != __version__:
        raise MachineError(
            f"{platform.node()}: seqpack {__version__} is installed,"
            f" expected {common.version} as on the machine that started the run",
            hint=SAME_VERSION_HINT.format(common.version),
        )
    with contextlib.suppress(OSError):  # a node that lacks the folder can only take whole paths
        os.chdir(common.folder)
    amounts: list[tuple[int, int]] = [(0, 0)]
    with reporting_to(lambda amount, num_tokens: amounts.append((amount, num_tokens))):
        result = common.function(task)
    amount, num_tokens = map(sum, zip(*amounts, strict=True))
    return result, amount, num_tokens


def _fetch(reference: Any, common: Common, task: Any) -> Any:
    """Give the result of a task, or raise what it raised."""
    import ray
    from ray.exceptions import LocalRayletDiedError, RayError, RaySystemError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, RaySystemError) or NO_IMPORT in str(error.cause):
            raise MachineError(
                f"a Ray worker cannot load the task: {_last_line(error.cause)}",
                hint=SAME_VERSION_HINT.format(common.version),
            ) from error
        raise error.cause from error
    except LocalRayletDiedError as error:
        raise broken_connection() from error
    except RayError as error:
        raise WorkerDiedError(
            f"a Ray worker or its node died {1 + MAX_RETRIES} times while working on:"
            f" {task} ({type(error).__name__})",
            hint="run the same command again with fewer workers (--num-workers 1): it continues",
        ) from error


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1].strip()


def broken_connection() -> MachineError:
    """Make the error about a cluster, or the node of it that we are connected to, that has gone."""
    return MachineError(
        "lost the connection to the Ray cluster: its node or its head node is gone",
        hint="run the same command again when 'ray status' answers: it continues",
    )


def cancel(references: list[Any], ways: Sequence[dict[str, bool] | None] = CANCEL_WAYS) -> None:
    """End tasks that nobody waits for; what they write could meet what is written next.

    Short ones end by themselves first: Ray 2.60 breaks off its whole process, now and then, where a
    task that is cancelled is just ending.
    """
    import ray

    for way in ways:
        if not references:
            return
        for reference in references:
            if way is not None:
                ray.cancel(reference, **way)
        _, references = ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
