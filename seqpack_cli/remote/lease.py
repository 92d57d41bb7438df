"""A lock among machines that share nothing but an object store.

Stores have no locks, but they create an object only if there is none. Its holder writes a new beat
into it every few seconds; who finds one watches it, and takes it over when the beat stands still.
No clock is compared, so clocks may differ.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from seqpack_cli.errors import FolderError, SeqpackError
from seqpack_cli.remote.objects import create_object, read_object, remove_objects, write_object
from seqpack_cli.remote.url import Url

BEAT_SECONDS = 10.0
UNKNOWN = "unknown"
DEAD_BEATS = 4  # that did not come: its holder has gone
WAIT_HINT = "wait for it, or choose another -o"


class Lease:
    """The lock of one place, held by this process; a thread keeps it alive."""

    def __init__(self, url: Url) -> None:
        self._url = url
        host = platform.node() or UNKNOWN
        self._own = f"{host} {os.getpid()} {_find_home()} {secrets.token_hex(8)}"
        self._beat = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def take(self) -> None:
        """Take the lock, from a holder that has gone too.

        Raises:
            FolderError: another process holds it.
        """
        while True:
            found = _read(self._url)  # first: some stores replace what they should only create
            if found is None:
                self._create()
                found = _read(self._url)
            if found is None:
                continue  # its holder has just removed it
            if found.startswith(self._own):
                break
            if not _has_gone(self._url, found):
                host, pid = found.split()[:2]
                raise FolderError(
                    f"{self._url.parent}: process {pid} on {host} writes here", hint=WAIT_HINT
                )
            remove_objects([self._url])
        self._thread.start()

    def _create(self) -> None:
        try:
            create_object(self._url, self._spell())
        except FolderError as error:  # an object needs no folder
            raise FolderError(
                f"{self._url.parent}: no such bucket", hint="make it, or choose another -o"
            ) from error

    def check(self) -> None:
        """Raise FolderError if another process took it over, since this one stood still so long."""
        found = _read(self._url)
        if found is None or not found.startswith(self._own):
            raise FolderError(
                f"{self._url.parent}: another process took over while this one stood still",
                hint=WAIT_HINT,
            )

    def let_go(self) -> None:
        """Remove it, if it is still this process's."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with contextlib.suppress(SeqpackError):  # what is left is taken over
            self.check()
            remove_objects([self._url])

    def _spell(self) -> bytes:
        return f"{self._own} {self._beat}".encode()

    def _keep_alive(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            with contextlib.suppress(SeqpackError):  # one beat less
                self.check()
                self._beat += 1
                write_object(self._url, self._spell())


@contextlib.contextmanager
def hold_lease(url: Url) -> Iterator[Lease]:
    """Be the only one who writes below a place until the block ends.

    Raises:
        FolderError: another process does.
    """
    lease = Lease(url)
    lease.take()
    try:
        yield lease
    finally:
        lease.let_go()


def _has_gone(url: Url, found: str) -> bool:
    """Say whether the holder of a lock has ended: at once of one here, else by watching it."""
    fields = found.split()
    if len(fields) != 5 or not fields[1].isdecimal():
        return True  # none of ours
    if fields[2] == _find_home() != UNKNOWN and not _is_alive(int(fields[1])):
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


def _find_home() -> str:
    """Name what gives processes their numbers: a container has its own, and not its own host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return UNKNOWN


def _read(url: Url) -> str | None:
    try:
        return read_object(url).decode(errors="replace")
    except FolderError:
        return None
