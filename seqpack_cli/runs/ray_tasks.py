"""Run independent tasks on a Ray cluster, one Ray task each, repeated if a node was lost.

Ray schedules, retries and moves the bytes. The function, with everything bound to it, is sent to
each node once, not with each task. A worker calls it as a local worker does, in the folder where
the run was started if its node has that folder, and only if its seqpack has the same version.
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
from seqpack_cli.limits import LIMITS, Limits, set_limits
from seqpack_cli.runs.progress import reporting_to
from seqpack_cli.runs.spawned_workers import WorkerDiedError
from seqpack_cli.runs.version import __version__

MAX_RETRIES = 3  # of a task whose worker or node died; an error of the task itself is final
TASKS_PER_CORE = 4  # submitted at a time, so that a free or new core has a task waiting
WATCH_SECONDS = 0.2
STOP_SECONDS = 3.0
NO_IMPORT = "failed to import on the worker"  # Ray's message for a missing module
CANCEL_WAYS = (None, {"force": False}, {"force": True})  # tried in this order
WAIT_SECONDS = 600.0  # for the first core: an autoscaler takes minutes
SAME_VERSION_HINT = "on every node, in a clone of seqpack {}: pip install '.[ray]'"


@dataclass(frozen=True)
class Common:
    """What all tasks of a run have in common; anything else is bound to `function`."""

    function: Callable[[Any], Any]
    version: str = field(default_factory=lambda: __version__)
    folder: str = field(default_factory=os.getcwd)
    limits: Limits = field(default_factory=lambda: LIMITS)


Calls = dict[Any, Any]  # tasks, by the references to their results


def run_calls(
    common: Common,
    tasks: Iterator[Any],
    calls: Calls,
    *,
    num_workers: int | None,
    on_notice: Callable[[str], None],
) -> Iterator[tuple[Any, int, int]]:
    """Run tasks on the cluster; yield each result with the amount and tokens that it reported.

    Args:
        common: what the tasks have in common.
        tasks: the next one is taken when there is room for it.
        calls: holds the submitted tasks, also after an error: `cancel` ends them.
        num_workers: the most tasks at a time; None keeps all cores busy, new nodes included.
        on_notice: is told that the cluster has no cores.

    Raises:
        WorkerDiedError: a task's worker or node died repeatedly.
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
    """Wait for one task to end and return all that have ended; to ask for thousands takes 10 ms."""
    import ray

    done, _ = ray.wait(references, num_returns=1, timeout=WATCH_SECONDS)
    if done:
        done, _ = ray.wait(references, num_returns=len(references), timeout=0)
    return list(done)


class _Cores:
    """The number of cores of the cluster, which may change, and since when there are none."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._none_since: float | None = None

    def count(self) -> int:
        """Return the current number of cores; raise MachineError if there are none for long."""
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
    """Do one task in a worker; return its result and the sums of what it reported."""
    if common.version != __version__:
        raise MachineError(
            f"{platform.node()}: seqpack {__version__} is installed,"
            f" expected {common.version} as on the machine that started the run",
            hint=SAME_VERSION_HINT.format(common.version),
        )
    set_limits(common.limits)
    with contextlib.suppress(OSError):  # without the folder, only absolute paths work
        os.chdir(common.folder)
    amounts: list[tuple[int, int]] = [(0, 0)]
    with reporting_to(lambda amount, num_tokens: amounts.append((amount, num_tokens))):
        result = common.function(task)
    amount, num_tokens = map(sum, zip(*amounts, strict=True))
    return result, amount, num_tokens


def _fetch(reference: Any, common: Common, task: Any) -> Any:
    """Return the result of a task, or raise its error."""
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
    """Return the error about a lost connection to the cluster."""
    return MachineError(
        "lost the connection to the Ray cluster: its node or its head node is gone",
        hint="run the same command again when 'ray status' answers: it continues",
    )


def cancel(references: list[Any], ways: Sequence[dict[str, bool] | None] = CANCEL_WAYS) -> None:
    """End tasks whose results are not needed, so that they do not write during the next run.

    Short tasks get time to end by themselves: Ray 2.60 sometimes aborts the whole process if a task
    ends while it is cancelled.
    """
    import ray

    for way in ways:
        if not references:
            return
        for reference in references:
            if way is not None:
                ray.cancel(reference, **way)
        _, references = ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
