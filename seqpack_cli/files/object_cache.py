"""Cache of objects as local files: each is downloaded once, checked, and shared by processes.

A file is named by its checksum, so a hit has the bytes that the manifest promises, wherever it was
downloaded from. It is hashed during the download, and later as `copy_marks` says; a damaged copy is
downloaded again. The folder is SEQPACK_CACHE_DIR (default ~/.cache/seqpack) and holds at most
SEQPACK_CACHE_BYTES (default 64 GiB): the least recently used files are removed first. A file may be
removed while it is mapped: its bytes stay until the last map is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqpack_cli.errors import FolderError, MachineError, OptionError, quote
from seqpack_cli.files import disk
from seqpack_cli.files.copy_marks import (
    check_copy,
    describe_status,
    find_checked,
    find_mark,
    mark_copy,
    unchanged,
)
from seqpack_cli.files.failures import check_same_size
from seqpack_cli.files.objects import iter_object
from seqpack_cli.files.url import Url
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
        with _hold_lock(folder, "room", shared=True):  # no process removes it before it is open
            if found := find_checked(path, num_bytes):
                disk.touch(find_mark(path))
                with unchanged(path, found):
                    yield path
                return
        with _hold_lock(folder, f"fetch-{checksum[0]}"):
            if not find_checked(path, num_bytes) and not check_copy(path, num_bytes, checksum):
                disk.remove_file(path)
                _fetch(url, path, num_bytes, checksum)


def find_cache_folder() -> Path:
    """Return the folder of the cache."""
    named = os.environ.get("SEQPACK_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqpack"


def find_cache_limit() -> int:
    """Return how many bytes the cache may hold.

    Raises:
        OptionError: SEQPACK_CACHE_BYTES is not a size.
    """
    text = os.environ.get("SEQPACK_CACHE_BYTES")
    if not text:
        return DEFAULT_BYTES
    size = read_size(text)
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


def _fetch(url: Url, path: Path, num_bytes: int, checksum: str) -> None:
    temporary = disk.name_temporary(path)
    with _hold_lock(path.parent, "room"):
        _make_room(path.parent, num_bytes)
        file = disk.create_file(temporary)
        disk.try_lock(file, path)  # so that `_make_room` does not take it for a leftover
        disk.reserve(file, num_bytes, path)
    try:
        with file:
            writer = disk.HashingWriter(file, path)
            for block in iter_object(url, 0, num_bytes):
                writer.write(block)
            check_same_size(url, writer.num_bytes, num_bytes)
            if writer.describe()["blake3"] != checksum:
                raise FolderError(f"{url}: blake3 differs from the manifest's")
            found = describe_status(os.fstat(file.fileno()))  # before the name can be replaced
            disk.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(MachineError):  # the first error is the one to report
            disk.remove_file(temporary)
        raise
    mark_copy(path, found)


def _make_room(folder: Path, num_bytes: int) -> None:
    """Remove the least recently used copies until num_bytes fit, or the cache is empty."""
    found = []
    num_taken = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if DIGEST.fullmatch(path.name):
                found.append((_find_last_use(path, status), status.st_size, path))
            elif not disk.TEMP_PATTERN.fullmatch(path.name) or disk.remove_left_over(path):
                continue
            num_taken += status.st_size
    excess = num_taken - (find_cache_limit() - num_bytes)
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        disk.remove_file(path)
        disk.remove_file(find_mark(path))
        excess -= size


def _find_last_use(path: Path, status: os.stat_result) -> int:
    """Return when a copy was last used; without a mark (older versions), when it was written."""
    try:
        return find_mark(path).lstat().st_mtime_ns
    except FileNotFoundError:
        return status.st_mtime_ns


@contextlib.contextmanager
def _hold_lock(folder: Path, name: str, *, shared: bool = False) -> Iterator[None]:
    path = folder / f".{name}.lock"
    with _naming_cache():
        file = disk.open_shared(path)
    with file:
        disk.wait_for_lock(file, path, shared=shared)
        yield
