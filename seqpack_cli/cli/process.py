"""What a command asks of the system for its own process: to end on Ctrl-C and SIGTERM, in order.

Until a command's work begins there is nothing to clean up, and the process ends where it stands:
many packages do not survive an interrupt while they are imported. Then the first signal is raised
as KeyboardInterrupt, so that what is open is closed and what is half written is removed. Those that
follow at once, from a second Ctrl-C or a scheduler, do not disturb that; a later one ends the
process where it stands. What was ignored from the start, as SIGINT is in a shell's background jobs,
stays so.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

EXIT_INTERRUPTED = 130
SOON = 0.02  # seconds
PATIENCE = 3.0  # seconds that cleaning up may take before a signal ends the process at once
MESSAGE = "Interrupted: run the same command again"


class Interrupts:
    """Ctrl-C and SIGTERM from now on, in the main thread of the program."""

    has_work = False  # of the process: what would have to be cleaned up

    def __init__(self) -> None:
        self.first: float | None = None  # when the first one came
        self._number = signal.SIGINT  # of the one that was raised
        if threading.current_thread() is not threading.main_thread():
            return  # signals are the main thread's
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._hear)
        sys.unraisablehook = self._send_again

    def end(self) -> None:
        """Let the next one end the process at once: nothing is left to be cleaned up."""
        Interrupts.has_work = False
        # Behind the wait for threads, where Python would put the system's own way back: to die.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if not self.has_work and self.first is None:
            with contextlib.suppress(OSError):
                io.FileIO(2, "w", closefd=False).write(f"\n{MESSAGE}\n".encode())
        if not self.has_work or (self.first is not None and now - self.first > PATIENCE):
            os._exit(EXIT_INTERRUPTED)
        if self.first is None:
            self.first, self._number = now, signal.Signals(number)
            raise KeyboardInterrupt

    def _send_again(self, unraisable: Any) -> None:
        """Send an interrupt once more that came where Python only prints what is raised."""
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            return
        self.first = None
        threading.Timer(SOON, os.kill, (os.getpid(), self._number)).start()
