"""What a command asks of the system for its own process: to end on Ctrl-C and SIGTERM, in order.

The first signal is raised as KeyboardInterrupt, so that what is open is closed and what is half
written is removed. Those that follow at once, from a second Ctrl-C or a scheduler, do not disturb
that; a later one ends the process where it stands. What was ignored from the start, as SIGINT is in
a shell's background jobs, stays so.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

EXIT_INTERRUPTED = 130
PATIENCE = 3.0  # seconds that cleaning up may take before a signal ends the process at once


class Interrupts:
    """Ctrl-C and SIGTERM from now on, in the main thread of the program."""

    def __init__(self) -> None:
        self.first: float | None = None  # when the first one came
        self._is_over = False
        if threading.current_thread() is not threading.main_thread():
            return  # signals are the main thread's
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._hear)

    def end(self) -> None:
        """Let the next one end the process at once: nothing is left to be cleaned up."""
        self._is_over = True

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if self._is_over or (self.first is not None and now - self.first > PATIENCE):
            os._exit(EXIT_INTERRUPTED)
        if self.first is None:
            self.first = now
            raise KeyboardInterrupt
