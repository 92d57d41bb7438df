"""All calls that change a local disk: write, rename, lock, remove.

Because every change goes through here, a refusal of the system becomes an error that names the file
in one place, and a test can make the k-th change fail, or kill the process there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.files.failures import naming_failures
from seqpack_cli.files.url import Place

# Do not follow links or wait for pipes. O_BINARY exists on Windows only, the others elsewhere.
FLAG_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
SAFE_FLAGS = sum(getattr(os, name, 0) for name in FLAG_NAMES)
LOCK_NAME = ".lock"  # in a folder that one process writes, on disk and in an object store
TEMP_PATTERN = re.compile(r"\.(.+)\.\d+\.tmp")
# Follows the thread's id in temporary names: machines that share a file system may have the same.
MACHINE = int.from_bytes(os.urandom(4)) % 10**9
HINTS = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), "free some disk space, then run the same command again"
    ),
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run the same command again",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV), "choose another -o"
    ),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "choose another -o"),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EINVAL), "choose another -o"),
    errno.ENOENT: "run the same command again",
}
# Errors of file systems without hard links.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def name_temporary(path: Path) -> Path:
    """Return the temporary name under which this thread writes a file."""
    return path.with_name(f".{path.name}.{threading.get_native_id()}{MACHINE:09d}.tmp")


def create_file(path: Path) -> FileIO:
    """Create a file and open it for writing, never an existing one or the target of a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS
    with naming_writes(path):
        try:
            return FileIO(os.open(path, flags, 0o666), "wb")
        except FileExistsError:  # from a killed thread that had the same id
            os.unlink(path)  # noqa: PTH108
            return FileIO(os.open(path, flags, 0o666), "wb")


def open_shared(path: Path) -> FileIO:
    """Open a file that other processes open too; create it if it is missing."""
    with naming_writes(path):
        flags = os.O_RDWR | os.O_CREAT | SAFE_FLAGS
        file = FileIO(os.open(path, flags, 0o666), "r+b")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise FileExistsError(errno.EEXIST, "not a regular file")
        return file


def try_lock(file: FileIO, path: Path) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock."""
    import fcntl  # not available on Windows

    with naming_writes(path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_for_lock(file: FileIO, path: Path, *, shared: bool = False) -> None:
    """Wait for the lock of a file, exclusive or shared, and hold it until the file is closed."""
    import fcntl

    with naming_writes(path):
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def reserve(file: FileIO, num_bytes: int, path: Path) -> None:
    """Set the size of a new file to what it will hold."""
    with naming_writes(path):
        os.ftruncate(file.fileno(), num_bytes)


def touch(path: Path) -> None:
    """Set the times of a file to now."""
    with naming_writes(path):
        os.utime(path)


def write_all(file: FileIO, data: memoryview | bytes, path: Place) -> None:
    """Write all bytes, in as many calls as it takes."""
    left = memoryview(data)
    with naming_writes(path):
        while left.nbytes:
            left = left[os.write(file.fileno(), left) :]


class HashingWriter:
    """An open new file that counts and hashes what is written to it."""

    def __init__(self, file: FileIO, path: Place) -> None:
        self._file = file
        self._path = path
        self._hash = blake3()
        self.num_bytes = 0

    def write(self, data: bytes | np.ndarray) -> None:
        """Write bytes, or a C-contiguous array's bytes."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")  # type: ignore[arg-type]
        write_all(self._file, view, self._path)
        self._hash.update(view)
        self.num_bytes += view.nbytes

    def describe(self) -> dict[str, Any]:
        """Return size and checksum as a manifest records them."""
        return {"bytes": self.num_bytes, "blake3": self._hash.hexdigest()}


def sync_file(file: FileIO, path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with naming_writes(path):
        os.fsync(file.fileno())


def rename(temp: Path, path: Path, *, replace: bool = True) -> None:
    """Move a complete file to its final name, and sync its folder.

    Args:
        replace: False fails if a file of that name exists, on file systems with hard links.
    """
    with naming_writes(path):
        if replace or not _link(temp, path):
            os.replace(temp, path)  # noqa: PTH105
    sync_folder(path.parent)


def _link(temp: Path, path: Path) -> bool:
    """Rename a file in one step, never over another; return False if hard links do not work."""
    try:
        os.link(temp, path)
    except OSError as error:
        if error.errno in NO_LINKS:
            return False
        raise
    os.unlink(temp)  # noqa: PTH108
    return True


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    with naming_writes(folder):
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:  # a folder may be writable and not readable
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # this file system does not sync folders
                raise
        finally:
            os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove a file if it exists."""
    with naming_writes(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def remove_left_over(temporary: Path) -> bool:
    """Remove a temporary file unless a process is writing it; return whether it was removed."""
    with open_shared(temporary) as file:
        is_left_over = try_lock(file, temporary)
        if is_left_over:
            remove_file(temporary)
    return is_left_over


def make_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents; return the new ones, the innermost first."""
    new_folders: list[Path] = []
    try:
        with naming_writes(folder):
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            for path in reversed(missing or [folder]):
                try:
                    os.mkdir(path)  # noqa: PTH102
                    new_folders.insert(0, path)
                except FileExistsError:
                    if not path.is_dir():
                        raise
                except FileNotFoundError as error:  # its parent exists: /proc, for example
                    raise PermissionError(errno.EPERM, "cannot create a folder here") from error
        for path in reversed(new_folders):
            sync_folder(path.parent)
    except BaseException:
        remove_folders(new_folders)
        raise
    return new_folders


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder in the system's temporary folder; remove it when the block ends."""
    import tempfile  # takes 5 ms, so not at the top

    with naming_writes(Path(tempfile.gettempdir())):
        folder = tempfile.TemporaryDirectory(prefix="seqpack-")
    with folder as name:
        yield Path(name)


def remove_folders(folders: list[Path]) -> None:
    """Remove folders in the given order, up to the first that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)  # noqa: PTH106


def naming_writes(path: Place) -> AbstractContextManager[None]:
    """Turn an OSError while writing into an error with the file's final name."""
    temporary = TEMP_PATTERN.fullmatch(path.name)
    shown = path.with_name(temporary[1]) if temporary else path
    return naming_failures(shown, find_hint=_find_hint)


def _find_hint(error: Exception) -> str:
    code = getattr(error, "errno", None)
    return HINTS.get(code or 0, "fix the disk, then run the same command again")
