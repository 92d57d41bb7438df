"""Recognize panics of a Rust library, and hide what it prints about those that are expected.

A Rust library prints its panics, with a backtrace of a hundred lines where the environment asks for
one, before Python can catch them. While a tokenizer is probed, failures are expected, and what they
print is discarded. Everything else that was printed meanwhile is printed at the end.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator

STDERR = 2
_lock = threading.RLock()  # two threads that redirect stderr at once would lose it


@contextlib.contextmanager
def hiding_panics(*expected: type[Exception]) -> Iterator[None]:
    """Discard what is printed on stderr if the block ends with one of the expected errors.

    Only for short calls of a library: what other threads print is delayed, or discarded too.
    """
    if not hasattr(os, "memfd_create"):  # not Linux
        yield
        return
    with _lock:
        try:
            real = os.dup(STDERR)
        except OSError:  # closed
            yield
            return
        kept = os.memfd_create("stderr")
        os.dup2(kept, STDERR)
        printed = b""
        try:
            yield
        except expected:
            raise
        except BaseException:
            printed = _read(kept)
            raise
        else:
            printed = _read(kept)
        finally:
            os.dup2(real, STDERR)
            os.close(real)
            os.close(kept)
            with contextlib.suppress(OSError):
                io.FileIO(STDERR, "w", closefd=False).write(printed)


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the library on its input.

    A panic in Rust is a BaseException, which `except Exception` does not catch.
    """
    if isinstance(error, MemoryError):
        return False
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _read(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, os.fstat(descriptor).st_size)
