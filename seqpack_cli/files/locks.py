"""Locks of local files: of the folder of a run, and of temporary files that are being written.

The kernel releases a lock when its process dies, so a lock is never stale. The content of the lock
file of a folder only says who holds it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk

LOCK_NAME = ".lock"  # in a folder that one process writes
WAIT_HINT = "wait until it ends, or choose another -o"
# The content of a lock file: host and pid, or the part of them that was written before a kill.
OWNER = re.compile(rb'[^\s{}<>"]*( \d*)?')


def try_lock(file: FileIO, path: Path) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock."""
    import fcntl  # not available on Windows

    with disk.naming_writes(path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def wait_for_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Wait for the lock of a file, exclusive or shared, and hold it until the block ends."""
    import fcntl

    with disk.open_shared(path) as file:
        with disk.naming_writes(path):
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of a folder until the block ends.

    Raises:
        FolderError: another process holds it, or seqpack did not write it.
    """
    with _open_locked(path) as file:
        try:
            file.truncate(0)
            disk.write_all(file, f"{platform.node()} {os.getpid()}".encode(), path)
            yield
        finally:
            with contextlib.suppress(MachineError):  # the kernel's lock counts, not the file
                disk.remove_file(path)


def create_locked(temp: Path, path: Path) -> FileIO:
    """Create a temporary file and lock it, so that no other writer removes it as a left over."""
    while True:
        file = disk.create_file(temp)
        try:
            if try_lock(file, path) and os.fstat(file.fileno()).st_nlink:
                return file
        except MachineError:  # the file system does not support locks
            return file
        file.close()  # it was removed before it was locked


def remove_left_over(temporary: Path) -> bool:
    """Remove a temporary file unless a process is writing it; return whether it was removed."""
    with disk.open_shared(temporary) as file:
        is_left_over = try_lock(file, temporary)
        if is_left_over:
            disk.remove_file(temporary)
    return is_left_over


def _open_locked(path: Path) -> FileIO:
    foreign = FolderError(
        f"{path}: not a lock file of seqpack",
        hint="remove it if it is not needed, or choose another -o",
    )
    while True:
        try:
            file = disk.open_shared(path)
        except MachineError as error:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise foreign from error
            raise
        is_locked = try_lock(file, path)
        owner = file.read(200)
        if is_locked and OWNER.fullmatch(owner):
            with contextlib.suppress(FileNotFoundError):  # its last owner may have removed it
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
        file.close()
        if not is_locked:
            fields = owner.decode(errors="replace").split()
            host, pid = fields if len(fields) == 2 else ("unknown", "unknown")
            message = f"{path.parent}: process {pid} on {host} is writing here"
            raise FolderError(message, hint=WAIT_HINT)
        if not OWNER.fullmatch(owner):
            raise foreign
