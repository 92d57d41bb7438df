"""The lock of a folder on this machine, so that one run at a time writes there.

The kernel lets go of it when its process dies, so nothing stale is left to break; the file only
tells the next writer who holds it. In an object store a lease does the same.
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

LOCK_NAME = ".lock"  # in a folder and in a store alike
# Of a lock: host and pid, or as much of them as a kill left.
OWNER = re.compile(rb'[^\s{}<>"]*( \d*)?')


@contextlib.contextmanager
def hold_folder_lock(folder: Path) -> Iterator[Path]:
    """Be the only writer of a folder until the block ends.

    Raises:
        FolderError: another process writes there, or the lock is a file that is not ours.
    """
    path = folder / LOCK_NAME
    with _open_locked(path) as file:
        try:
            file.truncate(0)
            disk.write_all(file, f"{platform.node()} {os.getpid()}".encode(), path)
            yield folder
        finally:
            with contextlib.suppress(MachineError):  # it is the lock that counts, not the file
                disk.remove_file(path)


def _open_locked(path: Path) -> FileIO:
    while True:
        file = disk.open_shared(path)
        is_locked = disk.try_lock(file, path)
        owner = file.read(200)
        if is_locked and not OWNER.fullmatch(owner):
            file.close()
            raise foreign_lock_error(path)
        if not is_locked:
            file.close()
            fields = owner.decode(errors="replace").split()
            host, pid = fields if len(fields) == 2 else ("unknown", "unknown")
            raise in_use_error(path.parent, f"process {pid} on {host} writes")
        with contextlib.suppress(FileNotFoundError):  # its last owner has just removed it
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()
