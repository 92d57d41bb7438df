"""Plain files of this machine that a stranger may have written, opened and mapped.

A file is a regular one of the size that was promised, opened without following links or waiting for
a pipe, and mapped as a whole: a read-only array of its bytes, neither read nor kept open. Python's
own `mmap` holds on to the file before 3.13, and a process may have 1,024 of them in most systems: a
loader over more shards would map them again and again. So the system is called directly, but on
Windows, where Python's `mmap` is used and no such limit is known.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seqpack_cli.errors import FolderError
from seqpack_cli.files.disk import SAFE_FLAGS
from seqpack_cli.files.failures import check_same_size, naming_failures

NO_FILE = -1  # in place of the size of what is there and is no plain file
MAX_MAPPED_FILES = 16_384  # that one reader keeps: Linux allows a process 65,530 maps
Mapped = TypeVar("Mapped")


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


def map_file(descriptor: int, num_bytes: int) -> np.ndarray:
    """Map the first bytes of an open file, at least one, read-only, uint8[num_bytes].

    Raises:
        OSError: the system does not map it.
    """
    if _system() is None:
        mapped = mmap.mmap(descriptor, num_bytes, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.uint8)
    return np.asarray(_Map(descriptor, num_bytes))


def let_pages_go(array: np.ndarray) -> None:
    """Take the pages of a mapped file out of this process's memory; the next look brings them back.

    They stay in the system's cache. An array that is not of a map is left alone.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, _Map):
        _system().madvise(base.address, base.num_bytes, mmap.MADV_DONTNEED)


def keep_mapped(
    kept: dict[int, Mapped], number: int, make: Callable[[int], Mapped], *, max_kept: int
) -> Mapped:
    """Return what was made of the maps of a number, made if it is not kept; the last ones are.

    Threads may share `kept`: two may make the same at once.
    """
    found = kept.get(number)
    if found is None:
        found = make(number)
        if len(kept) >= max_kept:
            numbers = tuple(kept)  # copied in one step: another thread may add or remove some
            for oldest in numbers[: len(numbers) - max_kept + 1]:
                kept.pop(oldest, None)
        kept[number] = found
    return found


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FolderError(f"{path}: not a regular file")


class _Map:
    """The bytes of one file; an array made of it keeps it, and the last one to go unmaps it."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self._unmap = _system().munmap  # at its end the interpreter may have forgotten functions
        address = _system().mmap(None, num_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self.address, self.num_bytes = address, num_bytes
        self.__array_interface__ = {
            "data": (address, True),  # read-only
            "shape": (num_bytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "num_bytes"):
            self._unmap(self.address, self.num_bytes)


@functools.cache
def _system() -> Any:
    """Return the system's own functions, or None where there are none."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = pointer
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    library.munmap.argtypes = [pointer, size]
    library.madvise.argtypes = [pointer, size, number]
    return library
