"""Plain files of this machine that a stranger may have written, opened and mapped.

A file is a regular one of the size that was promised, opened without following links or waiting for
a pipe, and mapped as a whole.
"""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.disk import SAFE_FLAGS
from seqpack_cli.files.failures import check_same_size, naming_failures
from seqpack_cli.files.mapping import map_file

NO_FILE = -1  # in place of the size of what is there and is no plain file


def open_regular(path: Path, *, num_bytes: int | None = None) -> FileIO:
    """Open a plain file, not a link, of the expected size.

    Raises:
        FolderError: it is missing, something else, or of another size.
        MachineError: the disk fails, or this process may not read it.
    """
    _check_regular(path, look_at(path))  # opening a device may already do something
    with naming_reads(path):
        file = FileIO(os.open(path, os.O_RDONLY | SAFE_FLAGS), "rb")
    try:
        status = os.fstat(file.fileno())
        _check_regular(path, status)
        check_same_size(path, status.st_size, num_bytes)
    except FolderError:
        file.close()
        raise
    return file


def look_at(path: Path) -> os.stat_result:
    """Return the status of what is under a name, without following a link."""
    try:
        with naming_reads(path):
            return path.lstat()
    except ValueError as error:  # a name that no file can have
        raise FolderError(f"{path}: {error}") from error


def naming_reads(path: Path) -> AbstractContextManager[None]:
    """Turn the system's refusal to read into an error that names the file."""
    return naming_failures(path, missing=(FileNotFoundError, NotADirectoryError))


def map_regular(path: Path, *, num_bytes: int | None = None) -> np.ndarray:
    """Map a whole plain file of the expected size, read-only, uint8[bytes]."""
    with open_regular(path, num_bytes=num_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:  # which no system maps
            return np.empty(0, np.uint8)
        with naming_reads(path):  # there may be too many maps
            return map_file(file.fileno(), size)


def view_array(mapped: np.ndarray, dtype: str, *, count: int, offset: int = 0) -> np.ndarray:
    """Return count items of a mapped file from a byte on, all of which must lie in it."""
    num_bytes = count * np.dtype(dtype).itemsize
    return mapped[offset : offset + num_bytes].view(dtype)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FolderError(f"{path}: not a regular file")
