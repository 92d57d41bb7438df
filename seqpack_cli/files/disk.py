"""The calls that change a disk: all that the project writes, renames or removes goes through them.

One seam: what the system refuses becomes an error that names the file, in one place, and a test
that lets the k-th call fail, or ends the process there, meets every write there is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.files.failures import naming_failures
from seqpack_cli.files.url import Place

# No link is followed, no pipe waited for; Windows has neither, but text files.
FLAG_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
SAFE_FLAGS = sum(getattr(os, name, 0) for name in FLAG_NAMES)
LOCK_NAME = ".lock"  # in a folder that one process writes, in a store too
TEMP_PATTERN = re.compile(r"\.(.+)\.\d+\.tmp")
# Behind the pid in temporary names: machines that share a file system have the same pids.
MACHINE = secrets.randbelow(10**9)
HINTS = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), "free some disk space, then run the same command again"
    ),
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run the same command again",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose another -o"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "choose another -o"),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.EINVAL), "choose another -o"),
    errno.ENOENT: "run the same command again",
}
# What file systems without hard links answer.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def name_temporary(path: Path) -> Path:
    """Return the name under which this process writes a file before it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}{MACHINE:09d}.tmp")


def create_file(path: Path) -> FileIO:
    """Open a new file for writing, never one that is there, nor what a link points to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS
    with naming_writes(path):
        try:
            return FileIO(os.open(path, flags, 0o666), "wb")
        except FileExistsError:  # of a killed process that had our number
            os.unlink(path)  # noqa: PTH108
            return FileIO(os.open(path, flags, 0o666), "wb")


def open_shared(path: Path) -> FileIO:
    """Open a file that other processes open too, and make it if it is not there."""
    with naming_writes(path):
        flags = os.O_RDWR | os.O_CREAT | SAFE_FLAGS
        file = FileIO(os.open(path, flags, 0o666), "r+b")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise FileExistsError(errno.EEXIST, "not a regular file")
        return file


def try_lock(file: FileIO, path: Path) -> bool:
    """Lock a file until it is closed, and say whether nobody else had it."""
    import fcntl  # not on Windows, where only this function needs another way

    with naming_writes(path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_for_lock(file: FileIO, path: Path, *, shared: bool = False) -> None:
    """Lock a file until it is closed, alone or with others that share it, as soon as that goes."""
    import fcntl

    with naming_writes(path):
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def reserve(file: FileIO, num_bytes: int, path: Path) -> None:
    """Give a new file the size that it will have."""
    with naming_writes(path):
        os.ftruncate(file.fileno(), num_bytes)


def touch(path: Path) -> None:
    """Say that a file was used just now."""
    with naming_writes(path):
        os.utime(path)


def write_all(file: FileIO, data: memoryview | bytes, path: Place) -> None:
    """Write bytes to the end, however many calls that takes."""
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
        """Return size and checksum as a manifest names them."""
        return {"bytes": self.num_bytes, "blake3": self._hash.hexdigest()}


def sync_file(file: FileIO, path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with naming_writes(path):
        os.fsync(file.fileno())


def rename(temp: Path, path: Path, *, replace: bool = True) -> None:
    """Give a whole file its name, and wait until its folder is on the disk too.

    Args:
        replace: False fails where another file has the name, if the file system has hard links.
    """
    with naming_writes(path):
        if replace or not _link(temp, path):
            os.replace(temp, path)  # noqa: PTH105
    sync_folder(path.parent)


def _link(temp: Path, path: Path) -> bool:
    """Give a file a name that no other has, in one step; say whether the file system can."""
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
        except PermissionError:  # a folder to put things into, not to look at
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that has nothing to sync there
                raise
        finally:
            os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove a file if it is there."""
    with naming_writes(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def remove_left_over(temporary: Path) -> bool:
    """Remove what a killed process had begun to write; say whether it was that."""
    with open_shared(temporary) as file:
        is_left_over = try_lock(file, temporary)  # nobody writes it
        if is_left_over:
            remove_file(temporary)
    return is_left_over


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it; return the new ones, the innermost first."""
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
                except FileNotFoundError as error:  # what it lies in is there, and takes none
                    raise PermissionError(errno.EPERM, "cannot create a folder here") from error
        for path in reversed(new_folders):
            sync_folder(path.parent)
    except BaseException:
        remove_folders(new_folders)
        raise
    return new_folders


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder of the system's own for temporary files, which goes with all that is in it."""
    with naming_writes(Path(tempfile.gettempdir())):
        folder = tempfile.TemporaryDirectory(prefix="seqpack-")
    with folder as name:
        yield Path(name)


def remove_folders(folders: list[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)  # noqa: PTH106


def naming_writes(path: Place) -> AbstractContextManager[None]:
    """Turn the system's refusal into an error that names the file, not its temporary name."""
    temporary = TEMP_PATTERN.fullmatch(path.name)
    shown = path.with_name(temporary[1]) if temporary else path
    return naming_failures(shown, find_hint=_find_hint)


def _find_hint(error: Exception) -> str:
    code = getattr(error, "errno", None)
    return HINTS.get(code or 0, "fix the disk, then run the same command again")
