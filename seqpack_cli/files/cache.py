"""Cache of objects as local files: each is downloaded once, checked, and shared by processes.

A file is named by its checksum, so a hit has the bytes that the manifest promises, wherever it was
downloaded from. It is hashed during the download, then trusted; `verify` hashes the copies again
(`remove_damaged`). The folder is SEQPACK_CACHE_DIR (default ~/.cache/seqpack) and holds at most
SEQPACK_CACHE_BYTES (default 64 GiB): the least recently used files are removed first. A file may be
removed while it is mapped: its bytes stay until the last map is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seqpack_cli.errors import FolderError, MachineError, OptionError, quote
from seqpack_cli.files import disk
from seqpack_cli.files.disk import check_same_size, hash_file
from seqpack_cli.files.locks import create_locked, remove_left_over, wait_for_lock
from seqpack_cli.files.objects import Url, iter_object
from seqpack_cli.sizes import read_size

DEFAULT_BYTES = 64 << 30
DIGEST = re.compile(r"[0-9a-f]{64}")


@contextlib.contextmanager
def local_file(url: Url, entry: dict[str, Any]) -> Iterator[Path]:
    """Yield the path of a local copy of an object; the copy stays until the block ends.

    Args:
        entry: the file's entry in a manifest, with `bytes` and `blake3`.

    Raises:
        FolderError: the object is missing, or differs from the manifest.
        MachineError: the object store or the disk fails.
    """
    num_bytes, checksum = entry["bytes"], entry["blake3"]
    if not DIGEST.fullmatch(checksum):  # it becomes a file name
        raise FolderError(f"{url}: blake3 {quote(checksum)} in the manifest is not a checksum")
    folder = find_cache_folder()
    path = folder / checksum
    while True:
        with _naming_cache():
            disk.make_folder(folder)  # again: a user may clear the cache at any time
        # While a copy is opened, no process removes it.
        with _hold_lock(folder, "room", shared=True):
            if _is_whole(path, num_bytes):
                disk.touch(path)
                yield path
                return
        with _hold_lock(folder, f"fetch-{checksum[0]}"):
            if not _is_whole(path, num_bytes):
                _fetch(url, path, num_bytes, checksum)


def remove_damaged(entries: Iterable[dict[str, Any]]) -> None:
    """Hash the copies of some files, and remove those that differ: they are downloaded again.

    Args:
        entries: of the files in a manifest.
    """
    for entry in entries:
        path = find_cache_folder() / entry["blake3"]
        if DIGEST.fullmatch(path.name) and _is_whole(path, entry["bytes"]):
            with _naming_cache():
                if hash_file(path) != path.name:
                    disk.remove_file(path)


def find_cache_folder() -> Path:
    """Return the folder of the cache."""
    beside = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SEQPACK_CACHE_DIR") or beside / "seqpack")


def find_cache_limit() -> int:
    """Return how many bytes the cache may hold.

    Raises:
        OptionError: SEQPACK_CACHE_BYTES is not a size.
    """
    text = os.environ.get("SEQPACK_CACHE_BYTES")
    size = read_size(text) if text else DEFAULT_BYTES
    if size is None:
        raise OptionError(
            f"SEQPACK_CACHE_BYTES: {quote(text)} is not a size, expected for example 64GiB"
        )
    return size


@contextlib.contextmanager
def _naming_cache() -> Iterator[None]:
    """Replace the hint of a write error: the folder is the cache, not the output."""
    try:
        yield
    except MachineError as error:
        hint = "set SEQPACK_CACHE_DIR to a writable folder"
        raise MachineError(error.message, hint=hint) from error


@contextlib.contextmanager
def _hold_lock(folder: Path, name: str, *, shared: bool = False) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with _naming_cache():
            stack.enter_context(wait_for_lock(folder / f".{name}.lock", shared=shared))
        yield


def _is_whole(path: Path, num_bytes: int) -> bool:
    """Return whether there is a regular file of this size."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == num_bytes
    return False


def _fetch(url: Url, path: Path, num_bytes: int, checksum: str) -> None:
    temporary = disk.name_temporary(path)
    with _hold_lock(path.parent, "room"):
        _make_room(path.parent, num_bytes)
        file = create_locked(temporary, path)
        disk.reserve(file, num_bytes, path)
    try:
        with file:
            writer = disk.HashingWriter(file, path, temporary)
            for block in iter_object(url, 0, num_bytes):
                writer.write(block)
            check_same_size(url, writer.num_bytes, num_bytes)
            if writer.describe()["blake3"] != checksum:
                raise FolderError(f"{url}: blake3 differs from the manifest's")
            disk.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(MachineError):  # the first error is the one to report
            disk.remove_file(temporary)
        raise


def _make_room(folder: Path, num_bytes: int) -> None:
    """Remove the least recently used copies until num_bytes fit, or the cache is empty."""
    found = []
    num_taken = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if DIGEST.fullmatch(path.name):
                found.append((status.st_mtime_ns, status.st_size, path))
            elif not disk.TEMP_PATTERN.fullmatch(path.name) or remove_left_over(path):
                continue
            num_taken += status.st_size
    excess = num_taken - (find_cache_limit() - num_bytes)
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        disk.remove_file(path)
        excess -= size
