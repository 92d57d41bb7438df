"""Find the Ray cluster of a run, or start one, and connect this process to it.

Connecting takes about 1 s; starting a cluster on this machine takes about 5 s, and ending it 1 s.
Ray is imported only then.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

from seqpack_cli.errors import MachineError

ANSWER_SECONDS = 5.0  # Ray itself waits 80 s for an address where nothing answers
TOKEN_SECONDS = 2  # to learn whether a cluster requires a token; Ray itself waits 20 s
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


def check_installed() -> None:
    """Check that Ray is installed, without importing it.

    Raises:
        MachineError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MachineError("ray is not installed, --executor ray needs it", hint="pip install ray")


def connect(address: str | None, *, num_cores: int) -> None:
    """Connect this process to a cluster.

    Args:
        address: None: RAY_ADDRESS, else a cluster that runs on this machine, else a new one here.
        num_cores: of a new cluster.

    Raises:
        MachineError: no cluster answers, it requires another token, or none can be started.
    """
    import ray
    from ray.exceptions import RayError

    logging.getLogger("ray").setLevel(logging.ERROR)  # as `init` does; `_find_address` logs too
    found = _find_address(address)
    if found is not None and "://" not in found:
        _find_token(found)
    try:
        if found is None:
            ray.init(address="local", num_cpus=num_cores, include_dashboard=False, **QUIET)
        else:
            ray.init(address=found, **QUIET)
    except (OSError, RayError, RuntimeError, SystemExit, ValueError) as error:
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM:
            raise  # this process was told to end
        if found is not None:
            raise _refuse(found) from error
        raise MachineError(
            f"Ray cannot be started here: {error}", hint="start it yourself: ray start --head"
        ) from error


def _find_address(address: str | None) -> str | None:
    """Return the address of a cluster that answers; None if one must be started."""
    from ray._private import services  # no public function says where Ray would connect

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


def _find_token(address: str) -> None:
    """Use this user's token if the cluster requires one, and only then.

    `ray start` requires a token as soon as the user has one, and the first cluster that Ray itself
    starts on a machine creates one. `ray.init` then finds the token for "auto", but not for an
    address; and with a token, tasks fail on clusters that require none.
    """
    if importlib.util.find_spec("ray._private.authentication") is None:
        return  # this version of Ray has no tokens
    from ray._private.authentication import authentication_token_setup

    if not _wants_token(address):
        return
    authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    if _wants_token(address):
        raise MachineError(
            f"{address}: the Ray cluster requires a token and refuses the one found here",
            hint="set RAY_AUTH_TOKEN to what 'ray get-auth-token' prints on its head node,"
            " and RAY_AUTH_MODE=token",
        )


def _wants_token(address: str) -> bool:
    """Return whether a cluster refuses this process without a token."""
    from ray.exceptions import AuthenticationError, RayError

    raylet: Any = importlib.import_module("ray._raylet")
    with _configured("RAY_py_gcs_connect_timeout_s", str(TOKEN_SECONDS)):
        try:
            raylet.GcsClient(address=address)
        except AuthenticationError:
            return True
        except RayError:
            return False  # too slow to answer; `init` waits longer
    return False


@contextlib.contextmanager
def _configured(name: str, value: str) -> Iterator[None]:
    """Set a variable of Ray's configuration in this block."""
    config: Any = importlib.import_module("ray._raylet").Config
    before = os.environ.get(name)
    os.environ[name] = value
    config.initialize("")
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
        config.initialize("")


def _refuse(address: str) -> MachineError:
    return MachineError(
        f"{address}: no Ray cluster answers",
        hint="pass the host:port that 'ray start --head' prints, or leave out --ray-address",
    )
