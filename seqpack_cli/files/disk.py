"""Local files: open those that somebody else may have written, and every call that changes a disk.

A file is opened without following links or waiting for a pipe. Every change goes through here, so
that a refusal of the system becomes an error that names the file in one place, and a test can make
the k-th change fail, or kill the process there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import FolderError, MachineError, SeqpackError
from seqpack_cli.limits import LIMITS

if TYPE_CHECKING:
    import numpy as np  # not imported for --help

# Do not follow links or wait for pipes. O_BINARY exists on Windows only, the others elsewhere.
FLAG_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
SAFE_FLAGS = sum(getattr(os, name, 0) for name in FLAG_NAMES)
TEMP_PATTERN = re.compile(r"\.(.+)\.\d+\.tmp")
# Follows the thread's id in temporary names: machines that share a file system may have the same.
MACHINE = int.from_bytes(os.urandom(4)) % 10**9
AGAIN = "run the same command again"
HINTS = {
    "ENOSPC EDQUOT": f"free some disk space, then {AGAIN}",
    "EFBIG": f"raise the limit on file sizes (ulimit -f), then {AGAIN}",
    "ENOENT": AGAIN,
    "EACCES EPERM EROFS EBUSY EXDEV EEXIST ENOTDIR EISDIR ELOOP ENAMETOOLONG EINVAL": "choose "
    "another -o",
}
# Errors of file systems without hard links.
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@contextlib.contextmanager
def naming_failures(
    place: object,
    *,
    missing: tuple[type[Exception], ...] = (),
    others: type[Exception] = OSError,
    find_hint: Callable[[Exception], str | None] = lambda _: None,
) -> Iterator[None]:
    """Turn an exception in a block into an error that names the place.

    Args:
        missing: exceptions that become a FolderError "missing".
        others: exceptions that become a MachineError.
        find_hint: returns the hint for one of the others.
    """
    try:
        yield
    except SeqpackError:
        raise
    except missing as error:
        raise FolderError(f"{place}: missing") from error
    except others as error:
        text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        message = f"{place}: {' '.join(str(text).split())[:200]}"
        raise MachineError(message, hint=find_hint(error)) from error


def naming_writes(path: object) -> AbstractContextManager[None]:
    """Turn an OSError while writing into an error with the file's final name."""

    def find_hint(error: Exception) -> str:
        name = errno.errorcode.get(getattr(error, "errno", None) or 0, "?")
        hints = (hint for names, hint in HINTS.items() if name in names.split())
        return next(hints, f"fix the disk, then {AGAIN}")

    if isinstance(path, Path) and (temporary := TEMP_PATTERN.fullmatch(path.name)):
        path = path.with_name(temporary[1])
    return naming_failures(path, find_hint=find_hint)


def naming_reads(path: Path) -> AbstractContextManager[None]:
    """Turn an OSError while reading into an error that names the file."""
    return naming_failures(path, missing=(FileNotFoundError, NotADirectoryError))


def look_at(path: Path) -> os.stat_result:
    """Return the status of a path, without following a link."""
    try:
        with naming_reads(path):
            return path.lstat()
    except ValueError as error:  # a name that no file can have
        raise FolderError(f"{path}: {error}") from error


def check_same_size(place: object, size: int, num_bytes: int | None) -> None:
    """Raise FolderError if a file has not the expected size; None accepts any size."""
    if num_bytes not in (None, size):
        raise FolderError(f"{place}: {size:,} bytes, manifest says {num_bytes:,}")


def open_regular(path: Path, *, num_bytes: int | None = None) -> FileIO:
    """Open a regular file, not a link, of the expected size.

    Raises:
        FolderError: it is missing, not a regular file, or of another size.
        MachineError: the disk fails, or this process may not read it.
    """
    if not stat.S_ISREG(look_at(path).st_mode):  # first: opening a device can have side effects
        raise FolderError(f"{path}: not a regular file")
    with naming_reads(path):
        file = FileIO(os.open(path, os.O_RDONLY | SAFE_FLAGS), "rb")
    try:
        check_same_size(path, os.fstat(file.fileno()).st_size, num_bytes)
    except FolderError:
        file.close()
        raise
    return file


def hash_bytes(data: bytes) -> str:
    """Return the BLAKE3 checksum as hex."""
    from blake3 import blake3  # not for --help, here and below

    return blake3(data).hexdigest()


def hash_file(path: Path) -> str:
    """Return the BLAKE3 checksum of a whole regular file as hex."""
    from blake3 import blake3

    digest = blake3()
    with open_regular(path) as file, naming_reads(path):
        while block := file.read(LIMITS.read_bytes):
            digest.update(block)
    return digest.hexdigest()


def name_temporary(path: Path) -> Path:
    """Return the temporary name under which this thread writes a file."""
    return path.with_name(f".{path.name}.{threading.get_native_id()}{MACHINE:09d}.tmp")


def create_file(path: Path) -> FileIO:
    """Create a file and open it for writing, never an existing one or the target of a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE_FLAGS
    with naming_writes(path):
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


def reserve(file: FileIO, num_bytes: int, path: Path) -> None:
    """Set the size of a new file to what it will hold."""
    with naming_writes(path):
        os.ftruncate(file.fileno(), num_bytes)


def touch(path: Path) -> None:
    """Set the times of a file to now."""
    with naming_writes(path):
        os.utime(path)


def write_all(file: FileIO, data: memoryview | bytes, path: object) -> None:
    """Write all bytes, in as many calls as it takes."""
    left = memoryview(data)
    with naming_writes(path):
        while left.nbytes:
            left = left[os.write(file.fileno(), left) :]


class HashingWriter:
    """An open new file that counts and hashes what is written to it.

    Args:
        place: where it will be; errors name that.
        temporary: where it is.
    """

    def __init__(self, file: FileIO, place: object, temporary: Path) -> None:
        from blake3 import blake3

        self._file = file
        self._place = place
        self.temporary = temporary
        self.is_moved = False  # to its place
        self._hash = blake3()
        self.num_bytes = 0

    def write(self, data: bytes | np.ndarray) -> None:
        """Write bytes, or a C-contiguous array's bytes."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")  # type: ignore[arg-type]
        write_all(self._file, view, self._place)
        self._hash.update(view)
        self.num_bytes += view.nbytes

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        with naming_writes(self._place):
            os.fsync(self._file.fileno())

    def describe(self) -> dict[str, Any]:
        """Return size and checksum as a manifest records them."""
        return {"bytes": self.num_bytes, "blake3": self._hash.hexdigest()}


def rename(temp: Path, path: Path, *, replace: bool = True) -> None:
    """Move a complete file to its final name, and sync its folder.

    Args:
        replace: False fails if a file of that name exists, on file systems with hard links.
    """
    with naming_writes(path):
        is_moved = False
        if not replace:
            try:
                os.link(temp, path)
                is_moved = True
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
        if is_moved:
            os.unlink(temp)  # noqa: PTH108
        else:
            os.replace(temp, path)  # noqa: PTH105
    sync_folder(path.parent)


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
        for path in reversed(new_folders):
            sync_folder(path.parent)
    except BaseException:
        remove_folders(new_folders)
        raise
    return new_folders


def remove_folders(folders: list[Path]) -> None:
    """Remove folders in the given order, up to the first that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)  # noqa: PTH106


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder in the system's temporary folder; remove it when the block ends."""
    import tempfile  # takes 5 ms, so not at the top

    with naming_writes(Path(tempfile.gettempdir())):
        folder = tempfile.TemporaryDirectory(prefix="seqpack-")
    with folder as name:
        yield Path(name)
