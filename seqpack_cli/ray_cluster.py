"""The Ray cluster of a run: one that runs already, or one that is started here and ends with it.

To connect takes about 1 s, to start a cluster on this machine about 5 s, to end it 1 s. Ray itself
is loaded only then.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from seqpack_cli.errors import MachineError

ANSWER_SECONDS = 5.0  # Ray itself waits 80 s for an address where nobody is
_is_ours = False  # the connection of this process
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


def check_installed() -> None:
    """Raise unless Ray is there; it is not loaded for that.

    Raises:
        MachineError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise MachineError(
            "ray is not installed, --executor ray needs it", hint="pip install 'seqpack[ray]'"
        )


@contextlib.contextmanager
def hold_cluster(address: str | None, *, num_cores: int) -> Iterator[bool]:
    """Be connected to a cluster, unless this process is already; a cluster of ours ends after it.

    Gives whether the connection is ours: then it ends with the block, and all its tasks with it.

    Args:
        address: None takes RAY_ADDRESS, else what runs on this machine, else starts a cluster here.
        num_cores: of a cluster that is started.

    Raises:
        MachineError: Ray is not installed, no cluster answers, or none can be started.
    """
    check_installed()
    import ray

    global _is_ours
    if ray.is_initialized():
        yield _is_ours  # by whoever of us called before, else somebody else's
        return
    try:
        with _keeping_sigterm():
            _connect(address, num_cores)
        _is_ours = True
        yield _is_ours
    finally:
        _is_ours = False
        ray.shutdown()


def _connect(address: str | None, num_cores: int) -> None:
    import ray
    from ray.exceptions import RayError

    logging.getLogger("ray").setLevel(logging.ERROR)  # as `init` does; the search talks before it
    found = _find_address(address)
    try:
        if found is None:
            ray.init(address="local", num_cpus=num_cores, include_dashboard=False, **QUIET)
        else:
            ray.init(address=found, **QUIET)
    except (OSError, RayError, RuntimeError, SystemExit, ValueError) as error:
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM:
            raise KeyboardInterrupt from error  # as SIGTERM does elsewhere
        if found is not None:
            raise _refuse(found) from error
        raise MachineError(
            f"Ray can not be started here: {error}", hint="start it yourself: ray start --head"
        ) from error


def _find_address(address: str | None) -> str | None:
    """Find a cluster that answers; None where one is to be started."""
    from ray._private import services  # there is no public way to ask where Ray would connect

    if address is not None and "://" in address:
        found: str | None = address
    else:
        try:
            found = services.canonicalize_bootstrap_address(address)
        except (OSError, ValueError) as error:
            raise _refuse(address or os.environ.get("RAY_ADDRESS", "")) from error
    if found is None or _answers(found):
        return found
    if address is None and "RAY_ADDRESS" not in os.environ:
        return None  # a killed cluster left its address behind
    raise _refuse(address or found)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].rstrip("/").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError):
        return False
    return True


def _refuse(address: str) -> MachineError:
    return MachineError(
        f"{address}: no Ray cluster answers",
        hint="pass the host:port that 'ray start --head' names, or leave out --ray-address",
    )


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Keep what SIGTERM does here: Ray would end the program with a code of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
