"""Do the tasks of a run on a Ray cluster, in a child process: all calls of Ray.

Connecting takes about 1 s; starting a cluster on this machine takes 5 s, and ending it 1 s. Ray
schedules and repeats the tasks and moves the bytes. The function, with everything bound to it, is
sent to each node once. A worker calls it in the folder where the run was started if its node has
that folder, and only if its seqpack has the same version.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqpack_cli import __version__
from seqpack_cli.errors import MachineError
from seqpack_cli.limits import Limits, set_limits
from seqpack_cli.runs.workers import (
    ENVIRONMENT,
    FEWER_HINT,
    Executor,
    Parent,
    WorkerDiedError,
    call,
    count_cores,
)

ANSWER_SECONDS = 5.0
MAX_RETRIES = 3  # of a task whose worker or node died; an error of the task itself is final
TASKS_PER_CORE = 4  # submitted at a time, so that a free or new core has a task waiting
WATCH_SECONDS = 0.2
CANCEL_SECONDS = 3.0
NO_CORES_SECONDS = 600.0  # for the first core: an autoscaler takes minutes
ADDRESS_HINT = "pass the host:port that 'ray start --head' prints, or leave out --ray-address"
AUTH_HINT = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN ('ray get-auth-token' on the head node prints it)"
)
SAME_VERSION_HINT = "on every node, in a clone of seqpack {}: pip install '.[ray]'"


def serve(pipe: int) -> None:
    """Do tasks on a cluster until the parent is gone; those that it leaves are cancelled."""
    import ray

    parent = Parent(pipe)
    calls: dict[Any, Any] = {}  # tasks, by the references to their results
    try:
        parent.serve(functools.partial(_run, parent, calls), lambda: _cancel(calls))
    finally:
        _cancel(calls)
        ray.shutdown()


def _run(
    parent: Parent,
    calls: dict[Any, Any],
    function: Callable[[Any], Any],
    limits: Limits,
    executor: Executor,
) -> Iterator[tuple[str, Any]]:
    import ray
    from ray.exceptions import RayError

    if not ray.is_initialized():
        _connect(executor)
    submit = ray.remote(
        num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=False, scheduling_strategy="SPREAD"
    )(_call)
    try:
        common = ray.put((function, limits, __version__, Path.cwd()))
        task, no_cores_since = parent.ask(), 0.0
        while calls or task is not None:
            num_cores = int(ray.cluster_resources().get("CPU", 0))
            if num_cores:
                no_cores_since = 0.0
            elif not no_cores_since:
                no_cores_since = time.monotonic()
                seconds = f"{NO_CORES_SECONDS:.0f} s"
                yield "notice", f"the Ray cluster has no CPU; waiting up to {seconds} for a node"
            elif time.monotonic() > no_cores_since + NO_CORES_SECONDS:
                raise MachineError(
                    f"the Ray cluster has had no CPU for {NO_CORES_SECONDS:.0f} s",
                    hint="start a node with CPUs: ray start --address HOST:PORT --num-cpus 8",
                )
            limit = executor.num_workers or max(1, TASKS_PER_CORE * num_cores)
            while task is not None and len(calls) < limit:
                calls[submit.remote(common, task)] = task
                task = parent.ask()
            done, _ = ray.wait(list(calls), num_returns=1, timeout=WATCH_SECONDS)
            if done:  # asking about thousands takes 10 ms
                done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            for reference in done:
                result, reported = _fetch(reference, calls.pop(reference))
                yield "progress", reported
                yield "done", result
    except RayError:
        os._exit(1)  # as Ray itself does; the parent says that the connection is lost


def _connect(executor: Executor) -> None:
    """Connect to the address, RAY_ADDRESS, a cluster that runs on this machine, or a new one."""
    import ray
    from ray.exceptions import RayError

    asked = executor.ray_address or os.environ.get("RAY_ADDRESS")
    found = asked
    if asked in (None, "auto"):
        latest = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108
        with contextlib.suppress(OSError):
            found = latest.read_text()
    is_running = found == "auto" or (found is not None and _answers(found))
    if asked is not None and not is_running:
        raise MachineError(f"{asked}: no Ray cluster answers", ADDRESS_HINT)
    new = {"address": "local", "num_cpus": executor.num_workers or count_cores()}
    options: dict[str, Any] = {"address": asked} if is_running else new
    try:
        ray.init(**options, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (OSError, RayError, RuntimeError, ValueError) as error:
        why, cause = str(error).partition("\n")[0], str(error.__cause__)
        raise MachineError(
            f"{asked or 'this machine'}: cannot connect to Ray: {why}",
            hint=AUTH_HINT if "uthentication" in cause else ADDRESS_HINT,
        ) from error


def _answers(address: str) -> bool:
    """Return whether a server listens there: Ray itself asks for two minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError):
        return False
    return True


def _call(common: tuple[Any, ...], task: Any) -> tuple[Any, tuple[int, int]]:
    """Do one task in a worker; return its result and the sums of what it reported.

    So a task that is repeated counts once.
    """
    function, limits, version, folder = common
    if version != __version__:
        raise MachineError(
            f"{platform.node()}: seqpack {__version__} is installed,"
            f" expected {version} as on the machine that started the run",
            hint=SAME_VERSION_HINT.format(version),
        )
    set_limits(limits)
    os.environ.update(ENVIRONMENT)
    with contextlib.suppress(OSError):  # without the folder, only absolute paths work
        os.chdir(folder)
    amounts = [(0, 0)]
    result = call(function, task, lambda *reported: amounts.append(reported))
    amount, num_tokens = map(sum, zip(*amounts, strict=True))
    return result, (amount, num_tokens)


def _fetch(reference: Any, task: Any) -> Any:
    """Return the result of a task, or raise its error."""
    import ray
    from ray.exceptions import LocalRayletDiedError, RayError, RaySystemError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        text = str(error.cause).strip()
        if isinstance(error.cause, RaySystemError) or "failed to import on the worker" in text:
            raise MachineError(
                f"a Ray worker cannot load the task: {text.splitlines()[-1].strip()}",
                hint=SAME_VERSION_HINT.format(__version__),
            ) from error
        raise error.cause from error
    except LocalRayletDiedError:
        raise
    except RayError as error:
        raise WorkerDiedError(
            f"a Ray worker or its node died {1 + MAX_RETRIES} times while working on:"
            f" {task} ({type(error).__name__})",
            hint=FEWER_HINT,
        ) from error


def _cancel(calls: dict[Any, Any]) -> None:
    """End tasks whose results are not needed, so that they do not write during the next run."""
    import ray

    references = list(calls)
    calls.clear()
    for force in (False, True):
        if references:
            for reference in references:
                ray.cancel(reference, force=force)
            number = len(references)
            _, references = ray.wait(references, num_returns=number, timeout=CANCEL_SECONDS)
