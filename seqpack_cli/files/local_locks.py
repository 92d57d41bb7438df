"""Open a local file and lock it: the lock of a folder, or a temporary file that is being written.

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

from seqpack_cli.errors import MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.failures import foreign_lock_error, in_use_error

# The content of a lock file: host and pid, or the part of them that was written before a kill.
OWNER = re.compile(rb'[^\s{}<>"]*( \d*)?')


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file of a folder until the block ends.

    Raises:
        FolderError: another process holds it, or seqpack did not write it.
    """
    with open_locked(path) as file:
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
            if disk.try_lock(file, path) and os.fstat(file.fileno()).st_nlink:
                return file
        except MachineError:  # the file system does not support locks
            return file
        file.close()  # it was removed before it was locked


def open_locked(path: Path) -> FileIO:
    while True:
        try:
            file = disk.open_shared(path)
        except MachineError as error:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise foreign_lock_error(path) from error
            raise
        is_locked = disk.try_lock(file, path)
        owner = file.read(200)
        if is_locked and not OWNER.fullmatch(owner):
            file.close()
            raise foreign_lock_error(path)
        if not is_locked:
            file.close()
            fields = owner.decode(errors="replace").split()
            host, pid = fields if len(fields) == 2 else ("unknown", "unknown")
            raise in_use_error(path.parent, f"process {pid} on {host} is writing")
        with contextlib.suppress(FileNotFoundError):  # its last owner may just have removed it
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()
