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
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

from seqpack_cli.errors import MachineError
from seqpack_cli.files.held import remove_held
from seqpack_cli.files.reading import SAFE_FLAGS
from seqpack_cli.files.url import Place, Url

TEMP_PATTERN = re.compile(r"\.(.+)\.\d+\.tmp")
# Behind the pid in temporary names: machines that share a file system have the same pids.
MACHINE = secrets.randbelow(10**9)
HINTS = {
    errno.ENOSPC: "make room, then run the same command again",
    errno.EDQUOT: "make room, then run the same command again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run the same command again",
    errno.EACCES: "choose another -o",
    errno.EPERM: "choose another -o",
    errno.EROFS: "choose another -o",
    errno.EEXIST: "choose another -o",
    errno.ENOTDIR: "choose another -o",
    errno.EISDIR: "choose another -o",
    errno.ELOOP: "choose another -o",
    errno.ENAMETOOLONG: "choose another -o",
    errno.EINVAL: "choose another -o",
    errno.ENOENT: "run the same command again",
}
# What file systems without hard links answer.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def name_temporary(path: Path) -> Path:
    """Give the name under which this process writes a file before it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}{MACHINE:09d}.tmp")


def create_file(path: Path) -> FileIO:
    """Open a new file for writing, never one that is there, nor what a link points to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS
    with naming_failures(path):
        try:
            return FileIO(os.open(path, flags, 0o666), "wb")
        except FileExistsError:  # of a killed process that had our number
            os.unlink(path)  # noqa: PTH108
            return FileIO(os.open(path, flags, 0o666), "wb")


def open_shared(path: Path) -> FileIO:
    """Open a file that other processes open too, and make it if it is not there."""
    with naming_failures(path):
        flags = os.O_RDWR | os.O_CREAT | SAFE_FLAGS
        file = FileIO(os.open(path, flags, 0o666), "r+b")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise FileExistsError(errno.EEXIST, "not a regular file")
        return file


def try_lock(file: FileIO, path: Path) -> bool:
    """Lock a file until it is closed, and say whether nobody else had it."""
    import fcntl  # not on Windows, where only this function needs another way

    with naming_failures(path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_for_lock(file: FileIO, path: Path, *, shared: bool = False) -> None:
    """Lock a file until it is closed, alone or with others that share it, as soon as that goes."""
    import fcntl

    with naming_failures(path):
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def reserve(file: FileIO, num_bytes: int, path: Path) -> None:
    """Give a new file the size that it will have."""
    with naming_failures(path):
        os.ftruncate(file.fileno(), num_bytes)


def touch(path: Path) -> None:
    """Say that a file was used just now."""
    with naming_failures(path):
        os.utime(path)


def write_all(file: FileIO, data: memoryview | bytes, path: Place) -> None:
    """Write bytes to the end, however many calls that takes."""
    left = memoryview(data)
    with naming_failures(path):
        while left.nbytes:
            left = left[os.write(file.fileno(), left) :]


def sync_file(file: FileIO, path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with naming_failures(path):
        os.fsync(file.fileno())


def rename(temp: Path, path: Path, *, replace: bool = True) -> None:
    """Give a whole file its name, and wait until its folder is on the disk too.

    Args:
        replace: False fails where another file has the name, if the file system has hard links.
    """
    with naming_failures(path):
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
    with naming_failures(folder):
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


def remove_files(paths: Sequence[Place]) -> None:
    """Remove files of one folder, those that are there."""
    urls = [path for path in paths if isinstance(path, Url)]
    if urls:
        remove_held(urls)
    for path in paths:
        if isinstance(path, Path):
            remove_file(path)


def remove_file(path: Place) -> None:
    """Remove a file if it is there."""
    if isinstance(path, Url):
        remove_files([path])
        return
    with naming_failures(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def make_folder(folder: Place) -> list[Path]:
    """Make a folder and those above it; give the new ones, the innermost first."""
    if isinstance(folder, Url):  # an object needs none
        return []
    new_folders: list[Path] = []
    try:
        with naming_failures(folder):
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            for path in reversed(missing or [folder]):
                try:
                    os.mkdir(path)  # noqa: PTH102
                    new_folders.insert(0, path)
                except FileExistsError:
                    if not path.is_dir():
                        raise
                except FileNotFoundError as error:  # what it lies in is there, and takes none
                    raise PermissionError(errno.EPERM, "no folder can be made there") from error
        for path in reversed(new_folders):
            sync_folder(path.parent)
    except BaseException:
        remove_folders(new_folders)
        raise
    return new_folders


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder of the system's own for temporary files, which goes with all that is in it."""
    with naming_failures(Path(tempfile.gettempdir())):
        folder = tempfile.TemporaryDirectory(prefix="seqpack-")
    with folder as name:
        yield Path(name)


def remove_folders(folders: list[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)  # noqa: PTH106


@contextlib.contextmanager
def naming_failures(path: Place) -> Iterator[None]:
    """Turn the system's refusal into an error that names the file, not its temporary name."""
    try:
        yield
    except OSError as error:
        temporary = TEMP_PATTERN.fullmatch(path.name)
        shown = path.with_name(temporary[1]) if temporary else path
        raise MachineError(
            f"{shown}: {error.strerror or error}",
            hint=HINTS.get(error.errno or 0, "mend the disk, then run the same command again"),
        ) from error
