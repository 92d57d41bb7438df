"""An open file -> its bytes as a read-only array, neither read nor kept open.

Python's own `mmap` holds on to the file before 3.13, and a process may have 1,024 of them in most
systems: a loader over more shards would map them again and again. So the system is called directly;
where it can not be, on Windows, Python's `mmap` serves, and no such limit is known there.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

MAX_MAPPED_FILES = 16_384  # that one reader keeps: Linux allows a process 65,530 maps
Mapped = TypeVar("Mapped")


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
