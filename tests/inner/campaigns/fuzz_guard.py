"""Limits of one execution of a fuzz target: time, memory, and the files it may touch.

`Guard` is for processes that do nothing else: its audit hook and its memory limit are permanent.
`limited` is for a test. Exceeding a limit raises an exception that seqpack never catches, or a
MemoryError.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SECONDS = 40.0  # of one execution, which takes 1 ms; the machine may be busy
GROWTH_BYTES = 1 << 30  # of memory, over all executions of a process
WRITES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.mknod", "os.utime", "shutil.rmtree", "shutil.move"),
)
REFUSED = (
    *("subprocess.", "socket.", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork"),
    *("pickle.find_class", "webbrowser.", "urllib.", "ctypes.dlopen"),
)
Event = tuple[str, tuple[object, ...]]


class LimitError(BaseException):
    """An execution took too much time or memory, or touched a file that it may not touch."""


class Guard:
    """Watches all executions of this process."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        bases = {sys.prefix, sys.base_prefix, sysconfig.get_path("purelib")}
        self._readable = (*bases, str(Path(__file__).parents[3]), "/proc/self/", "/dev/null")
        self._armed = False
        self._violations: list[Event] = []
        os.chdir(root)  # a name without a folder is one of an opened folder, or is found out
        sys.addaudithook(self._hear)
        signal.signal(signal.SIGALRM, _stop)
        _limit_memory(GROWTH_BYTES)
        self._most = _peak_bytes() + GROWTH_BYTES

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch one execution.

        Raises:
            LimitError: it exceeded a limit.
        """
        self._violations.clear()
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False
        if self._violations:
            raise LimitError(f"touched {self._violations[0]}")
        if _peak_bytes() > self._most:
            self._most += GROWTH_BYTES
            raise LimitError(f"memory grew by {GROWTH_BYTES:,} bytes")

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._armed:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, str | bytes | os.PathLike):
                self._armed = False  # while it is looked at
                try:
                    if not self._may_open(os.fspath(path), flags):
                        self._violations.append((event, (path, mode, flags)))
                finally:
                    self._armed = True
        elif event in WRITES:
            paths = [os.fspath(path) for path in arguments if isinstance(path, str | os.PathLike)]
            if not all(self._is_inside(path) for path in paths):
                self._violations.append((event, arguments))
        elif event.startswith(REFUSED):
            self._violations.append((event, arguments))

    def _may_open(self, path: str | bytes, flags: object) -> bool:
        flags = flags if isinstance(flags, int) else 0
        path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - ".." and all, links as they are
        if not flags & os.O_NOFOLLOW and os.path.islink(path):  # noqa: PTH114
            path = os.path.realpath(path)
        if self._is_inside(path):
            return True
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        return not writes and path.startswith(self._readable)

    def _is_inside(self, path: str | bytes) -> bool:
        path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return path.startswith(self._root + os.sep) or path == self._root


@contextlib.contextmanager
def limited(*, seconds: float = SECONDS, growth_bytes: int = GROWTH_BYTES) -> Iterator[None]:
    """Limit time and memory of a block in a test.

    Raises:
        LimitError: it took too long.
    """
    before = _limit_memory(growth_bytes)
    previous = signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _limit_memory(growth_bytes: int) -> tuple[int, int]:
    """Limit how much more address space this process may take; return the previous limits."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + growth_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    return before


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise LimitError("took too long")


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
