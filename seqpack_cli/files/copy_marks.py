"""Marks that say when a cached copy of an object was hashed, to know whether it changed since.

The mark beside a copy holds the inode, size and modification time of the hashed file, and when it
was hashed. A loader trusts the mark (20 microseconds). A run hashes each copy once (3 ms per
megabyte, `hashing_copies`), because damage on the disk changes none of these values.
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
_since: int | None = None  # in ns: trust only copies hashed after this; None: trust all marks


@contextlib.contextmanager
def hashing_copies(since: int | None = None) -> Iterator[int]:
    """In this block, hash again every copy that was last hashed before the run began.

    Args:
        since: when the run began, in ns, or None for now. Workers get the run's value, so that each
            copy is hashed once per run and machine.
    """
    global _since
    before, _since = _since, time.time_ns() if since is None else since
    try:
        yield _since
    finally:
        _since = before


def find_began() -> int | None:
    """Return when the run began that `hashing_copies` is in force for, to pass it to workers."""
    return _since


@contextlib.contextmanager
def unchanged(path: Path, found: list[int]) -> Iterator[None]:
    """Raise if a copy was replaced while the block opened it.

    Args:
        found: the checked file, of `find_checked`.
    """
    error: SeqpackError | None = None
    try:
        yield
    except SeqpackError as caught:
        error = caught  # perhaps because of the replacement
    if _describe(path, found[1]) != found:
        hint = "run the same command again"
        raise MachineError(f"{path}: changed while it was opened", hint=hint) from error
    if error is not None:
        raise error


def find_mark(path: Path) -> Path:
    """Return the path of a copy's mark; the mark's modification time is the copy's last use."""
    return path.with_name(f".{path.name}.checked")


def find_checked(path: Path, num_bytes: int) -> list[int] | None:
    """Return the `describe_status` of a copy that need not be hashed again, else None."""
    try:
        mark = LocalPlace(find_mark(path)).read(max_bytes=MAX_MARK_BYTES)
        *marked, hashed = map(int, mark.split())
    except (SeqpackError, ValueError):
        return None
    is_late = _since is None or hashed >= _since
    return marked if is_late and _describe(path, num_bytes) == marked else None


def _describe(path: Path, num_bytes: int) -> list[int] | None:
    """Return the `describe_status` of a regular file of the expected size, else None."""
    try:
        status = path.lstat()
    except OSError:
        return None
    is_whole = stat.S_ISREG(status.st_mode) and status.st_size == num_bytes
    return describe_status(status) if is_whole else None


def describe_status(status: os.stat_result) -> list[int]:
    """Return what identifies a file: inode, size and modification time."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def check_copy(path: Path, num_bytes: int, checksum: str) -> bool:
    """Hash a copy and mark it if the checksum is right; return whether it is."""
    found = _describe(path, num_bytes)
    try:
        if found is None or LocalPlace(path).hash() != checksum:
            return False
    except SeqpackError:
        return False
    mark_copy(path, found)
    return True


def mark_copy(path: Path, found: list[int]) -> None:
    """Record that a file was hashed just now.

    Args:
        found: its `describe_status` at that time.
    """
    now = max(time.time_ns(), _since or 0)  # _since may be from a machine whose clock is ahead
    mark = find_mark(path)
    with disk.open_shared(mark) as file:
        file.truncate(0)
        disk.write_all(file, " ".join(map(str, [*found, now])).encode(), mark)
