"""Changes to a run's folder in an object store, refused once another run has taken it over.

A process that was suspended (a closed laptop, a network gap) notices before it changes anything:
it reads the lock, then creates an object, or replaces exactly the object that it saw before it read
the lock. A request that would begin too long after that, such as a retry of s3fs, is not sent. So a
store that another run has finished stays unchanged, byte for byte.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from seqpack_cli.errors import MachineError, SeqpackError
from seqpack_cli.files import lease
from seqpack_cli.files.file_systems import AGAIN_HINT
from seqpack_cli.files.objects import S3, remove_objects
from seqpack_cli.files.puts import find_tag, upload, upload_over
from seqpack_cli.files.url import Url

MAX_TRIES = 8  # of one change, each after reading the lock again
# S3 operations that change what others see, in one short request.
OPERATIONS = ("PutObject", "DeleteObject", "DeleteObjects")
_renewals: dict[str, tuple[float, float]] = {}  # when to read the lock of each holder again
_ends: ContextVar[tuple[float, float] | None] = ContextVar("_ends", default=None)


class LateError(SeqpackError):
    """A request was not sent: the lock was read too long ago and may have a new holder."""


def upload_held(path: Path, url: Url) -> None:
    """Upload a local file into a run's folder; the object appears when it is complete.

    Raises:
        FolderError: another run has taken the folder over.
        MachineError: the object store refuses it.
    """
    if not url.holder:
        upload(path, url)
        return
    tag = None  # most often there is nothing to replace
    for _ in range(MAX_TRIES):
        with contextlib.suppress(LateError), _while_held(url, is_new=tag is None):
            if upload_over(path, url, tag):
                return
        tag = find_tag(url)
    raise MachineError(f"{url}: another process is writing it too", hint=AGAIN_HINT)


def remove_held(urls: Iterable[Url]) -> None:
    """Remove those objects of a run's folder that exist.

    Raises:
        FolderError: another run has taken the folder over.
        MachineError: the object store does not remove them.
    """
    urls = list(urls)
    for _ in range(MAX_TRIES):
        with contextlib.suppress(LateError), _while_held(urls[0]):
            remove_objects(urls)
            return
    raise MachineError(f"{urls[0]}: the object store does not answer", hint=AGAIN_HINT)


@contextlib.contextmanager
def _while_held(url: Url, *, is_new: bool = False) -> Iterator[None]:
    """Check the lock, then allow requests to begin for BEAT_SECONDS.

    Args:
        is_new: the requests only create new objects, so that a recent check is enough.
    """
    monotonic, wall = _read_clocks()
    if not (is_new and _is_before(_renewals.get(url.holder))):
        lease.check_held(url)
        _renewals[url.holder] = (
            monotonic + lease.BEAT_SECONDS / 10,
            wall + lease.BEAT_SECONDS / 10,
        )
    if not url.holder or url.protocol not in S3:
        yield
        return
    system, _ = url.open_file_system()
    _watch_requests(system.s3)
    token = _ends.set((monotonic + lease.BEAT_SECONDS, wall + lease.BEAT_SECONDS))
    try:
        yield
    finally:
        _ends.reset(token)


def _watch_requests(client: Any) -> None:
    """Call `_refuse_late` before every request that changes an object, retries included."""
    for operation in OPERATIONS:
        name = f"before-send.s3.{operation}"
        client.meta.events.register(name, _refuse_late, unique_id=f"seqpack-{operation}")
    # Below botocore, aiohttp itself repeats a request if a connection ended without an answer.
    with contextlib.suppress(AttributeError):
        for session in client._endpoint.http_session._sessions.values():
            session._retry_connection = False


def _refuse_late(**_: Any) -> None:
    ends = _ends.get()  # of the thread that called s3fs
    if ends is not None and not _is_before(ends):
        raise LateError("the lock was read too long ago")


def _is_before(ends: tuple[float, float] | None) -> bool:
    return ends is not None and all(map(operator.le, _read_clocks(), ends))


def _read_clocks() -> tuple[float, float]:
    """Read two clocks: one that cannot be set, and one that goes on while the machine sleeps."""
    return time.monotonic(), time.time()
