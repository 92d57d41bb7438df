"""What a command asks of the system for its own process: a way to end, and files to open."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

WANTED_FILES = 65_536  # a store of 64 GiB of text has 2,000, all open at once where they are maps


@contextlib.contextmanager
def end_like_ctrl_c() -> Iterator[None]:
    """End on SIGTERM, which schedulers send before they kill, in order, as on Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)  # once is enough
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def raise_file_limit() -> None:
    """Let this process and its workers have as many files open as the system allows them."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
