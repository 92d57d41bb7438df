"""What a command asks of the system for its own process: a way to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


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
