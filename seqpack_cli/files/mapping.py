"""Map local files that somebody else may have written.

A file must be a regular file of the expected size. It is mapped as a whole: a read-only array of
its bytes, neither read nor kept open.
Before 3.13, Python's own `mmap` keeps the file open, and most systems allow a process 1,024 open
files: a loader over more shards would map them again and again. So the system is called directly,
except on Windows, where Python's `mmap` is used and no such limit is known.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seqpack_cli.files.disk import naming_reads, open_regular

Mapped = TypeVar("Mapped")


def map_regular(path: Path, *, num_bytes: int | None = None) -> np.ndarray:
    """Map a whole regular file of the expected size, read-only, uint8[bytes]."""
    with open_regular(path, num_bytes=num_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:  # an empty file cannot be mapped
            return np.empty(0, np.uint8)
        with naming_reads(path):  # there may be too many maps
            return map_file(file.fileno(), size)


def view_array(mapped: np.ndarray, dtype: str, *, count: int, offset: int = 0) -> np.ndarray:
    """Return a view of count items of a mapped file, from byte offset on; all must lie within."""
    num_bytes = count * np.dtype(dtype).itemsize
    return mapped[offset : offset + num_bytes].view(dtype)


def map_file(descriptor: int, num_bytes: int) -> np.ndarray:
    """Map the first bytes of an open file, at least one, read-only, uint8[num_bytes].

    Raises:
        OSError: the system refuses to map it.
    """
    if _system() is None:
        mapped = mmap.mmap(descriptor, num_bytes, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.uint8)
    return np.asarray(_Map(descriptor, num_bytes))


def let_pages_go(array: np.ndarray) -> None:
    """Release the pages of a mapped file from this process's memory; the next access loads them.

    They stay in the system's cache. An array of no map is ignored.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, _Map):
        _system().madvise(base.address, base.num_bytes, mmap.MADV_DONTNEED)


def keep_mapped(
    kept: dict[int, Mapped], number: int, make: Callable[[int], Mapped], *, max_kept: int
) -> Mapped:
    """Return kept[number], made first if it is missing; the oldest go, so that max_kept are left.

    Threads may share `kept`; two of them may make the same value at once.
    """
    found = kept.get(number)
    if found is None:
        found = kept[number] = make(number)
        for oldest in tuple(kept)[:-max_kept]:  # copied in one step: other threads may change it
            kept.pop(oldest, None)
    return found


class _Map:
    """The mapped bytes of one file; unmapped when no array refers to it any more."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        self._unmap = _system().munmap  # at interpreter exit, module functions may be gone
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
    """Return the C library, or None on Windows."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = pointer
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    library.munmap.argtypes = [pointer, size]
    library.madvise.argtypes = [pointer, size, number]
    return library
