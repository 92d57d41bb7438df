"""A lock for machines that share only an object store.

Object stores have no locks, but they can create an object only if none exists, and replace it only
if it is still the one that was read. The holder of the lock object writes a new counter into it,
the beat, every few seconds. Another process watches it, and takes the lock over when the beat
stops. No clocks are compared.

A suspended holder may wake up after that. So before any process of a run changes an object of the
folder, it reads the lock (`check_held`), one small request.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.files.disk import LOCK_NAME
from seqpack_cli.files.failures import WAIT_HINT, foreign_lock_error, in_use_error
from seqpack_cli.files.objects import iter_object, remove_objects
from seqpack_cli.files.puts import find_tag, put_over
from seqpack_cli.files.url import Url

MAX_LOCK_BYTES = 1000  # ours have about 100
BEAT_SECONDS = 10.0
LOCK = re.compile(r"\S+ \d+ \S+ [0-9a-f]{16} \d+")  # host, pid, pid namespace, random id, beat
UNKNOWN = "unknown"
DEAD_BEATS = 4  # missed beats after which the holder counts as gone
MAX_TRIES = 20  # to take a lock that other processes keep taking


class Lease:
    """The lock of one folder, held by this process; a thread writes the beat."""

    def __init__(self, folder: Url) -> None:
        self._url = Url(f"{folder}/{LOCK_NAME}")
        host = platform.node() or UNKNOWN
        self._own = f"{host} {os.getpid()} {_find_pid_namespace()} {os.urandom(8).hex()}"
        self.folder = Url(folder.text, self._own)  # to write to, in any process of the run
        self._beat = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def take(self) -> None:
        """Take the lock, also from a holder that is gone.

        Raises:
            FolderError: another process holds it, or seqpack did not write the lock object.
        """
        for _ in range(MAX_TRIES):
            tag = find_tag(self._url)  # before reading, so that a later change makes it stale
            found = _read(self._url)  # before creating: some object stores replace instead
            if found is None or tag is None:
                self._create()
                found = _read(self._url)
            elif not found.startswith(self._own):
                self._check_dead(found)
                put_over(self._url, self._spell(), tag)  # succeeds in one process only
                found = _read(self._url)
            if found is not None and found.startswith(self._own):
                self._thread.start()
                return
        raise in_use_error(self._url.parent, "other processes are writing")

    def _check_dead(self, found: str) -> None:
        """Raise if the holder of a lock is alive, or the content is not a lock's."""
        if not LOCK.fullmatch(found):
            raise foreign_lock_error(self._url)
        if not has_gone(self._url, found):
            host, pid = found.split()[:2]
            raise in_use_error(self._url.parent, f"process {pid} on {host} is writing")

    def _create(self) -> None:
        try:
            put_over(self._url, self._spell(), None)
        except FolderError as error:  # objects need no folder, so the bucket is missing
            raise FolderError(
                f"{self._url.parent}: no such bucket", hint="create it, or choose another -o"
            ) from error

    def release(self) -> None:
        """Remove the lock if this process still holds it."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with contextlib.suppress(SeqpackError):  # a lock that stays will be taken over
            check_held(self.folder / LOCK_NAME)
            remove_objects([self._url])

    def _spell(self) -> bytes:
        return f"{self._own} {self._beat}".encode()

    def _keep_alive(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            with contextlib.suppress(SeqpackError):  # a missed beat
                tag = find_tag(self._url)
                check_held(self.folder / LOCK_NAME)
                self._beat += 1
                put_over(self._url, self._spell(), tag or "")


@contextlib.contextmanager
def hold_lease(folder: Url) -> Iterator[Url]:
    """Hold the lock of a URL until the block ends; yield the URL to write to.

    Raises:
        FolderError: another process holds it.
    """
    lease = Lease(folder)
    lease.take()
    try:
        yield lease.folder
    finally:
        lease.release()


def check_held(url: Url) -> None:
    """Check that the run of `url.holder` still holds the lock of the folder of a URL.

    Raises:
        FolderError: another process took over while this one was suspended.
    """
    if not url.holder:
        return
    found = _read(url.with_name(LOCK_NAME))
    if found is None or not found.startswith(f"{url.holder} "):
        raise FolderError(
            f"{url.parent}: another process took over while this one was suspended", hint=WAIT_HINT
        )


def has_gone(url: Url, found: str) -> bool:
    """Return whether the holder of a lock is gone: at once if it ran here, else by watching."""
    fields = found.split()
    if fields[2] == _find_pid_namespace() != UNKNOWN and not _is_alive(int(fields[1])):
        return True
    deadline = time.monotonic() + DEAD_BEATS * BEAT_SECONDS
    while time.monotonic() < deadline:
        time.sleep(BEAT_SECONDS / 4)
        if _read(url) != found:
            return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _find_pid_namespace() -> str:
    """Return the name of this pid namespace: containers of one host have different ones."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return UNKNOWN


def _read(url: Url) -> str | None:
    try:
        return b"".join(iter_object(url, 0, MAX_LOCK_BYTES)).decode(errors="replace")
    except FolderError:
        return None
