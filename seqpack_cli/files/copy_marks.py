"""Whether a cached copy of an object is what it was when it was hashed.

A mark beside each copy says which file was hashed, by its inode, size and time of change, and when.
A loader trusts it; a run hashes each copy once more (`hashing_copies`), since a disk that goes bad
changes none of that. To trust a mark costs 20 microseconds, to hash 3 ms a megabyte.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from seqpack_cli.errors import MachineError, SeqpackError
from seqpack_cli.files import disk
from seqpack_cli.files.local_place import LocalPlace

MAX_MARK_BYTES = 100
_since: int | None = None  # no copy that was hashed before is trusted, in ns; None: any is


@contextlib.contextmanager
def hashing_copies(since: int | None = None) -> Iterator[int]:
    """Trust no copy in this block that was last hashed before the run began, whatever its mark.

    Args:
        since: when the run began; a worker is told, so that each copy is hashed once a run and
            machine. None: now.
    """
    global _since
    before, _since = _since, time.time_ns() if since is None else since
    try:
        yield _since
    finally:
        _since = before


def find_began() -> int | None:
    """Return when the run of this block began, for its workers."""
    return _since


@contextlib.contextmanager
def unchanged(path: Path, found: list[int]) -> Iterator[None]:
    """Raise where a copy is not, while it is opened, the file that was found to be checked."""
    error: SeqpackError | None = None
    try:
        yield
    except SeqpackError as caught:
        error = caught  # of the file that took its place, perhaps
    if _describe(path, found[1]) != found:
        hint = "run the same command again"
        raise MachineError(f"{path}: changed while it was opened", hint=hint) from error
    if error is not None:
        raise error


def find_mark(path: Path) -> Path:
    """Return the file that says of a copy what it was when it was hashed; its time is the last use.

    It holds the copy's inode, size and time of change, and when it was hashed.
    """
    return path.with_name(f".{path.name}.checked")


def find_checked(path: Path, num_bytes: int) -> list[int] | None:
    """Describe a copy that is there, and is the file that was hashed, late enough for the run."""
    try:
        mark = LocalPlace(find_mark(path)).read(max_bytes=MAX_MARK_BYTES)
        *marked, hashed = map(int, mark.split())
    except (SeqpackError, ValueError):
        return None
    is_late = _since is None or hashed >= _since
    return marked if is_late and _describe(path, num_bytes) == marked else None


def _describe(path: Path, num_bytes: int) -> list[int] | None:
    """Return the inode, size and time of change of a plain file of the expected size."""
    try:
        status = path.lstat()
    except OSError:
        return None
    is_whole = stat.S_ISREG(status.st_mode) and status.st_size == num_bytes
    return describe_status(status) if is_whole else None


def describe_status(status: os.stat_result) -> list[int]:
    """Return what identifies a file: inode, size and time of change."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def check_copy(path: Path, num_bytes: int, checksum: str) -> bool:
    """Hash a copy, and mark it if it is what it should be; one that can not be read is not."""
    found = _describe(path, num_bytes)
    try:
        if found is None or LocalPlace(path).hash() != checksum:
            return False
    except SeqpackError:
        return False
    mark_copy(path, found)
    return True


def mark_copy(path: Path, found: list[int]) -> None:
    """Write down that the file that was found was hashed just now."""
    now = max(time.time_ns(), _since or 0)  # the clock of another machine may have been ahead
    mark = find_mark(path)
    with disk.open_shared(mark) as file:
        file.truncate(0)
        disk.write_all(file, " ".join(map(str, [*found, now])).encode(), mark)
