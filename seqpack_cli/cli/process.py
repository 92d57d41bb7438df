"""Handle Ctrl-C and SIGTERM for the process of a command.

Before a command's work begins there is nothing to clean up, and a signal ends the process at once:
many packages do not survive an interrupt during their import. After that, the first signal raises
KeyboardInterrupt, so that files are closed and temporary ones removed. Signals within the next
seconds, from a second Ctrl-C or a scheduler, are ignored; a later one ends the process at once. A
signal that was ignored from the start, as SIGINT is in a shell's background jobs, stays ignored.
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
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130
RESEND_SECONDS = 0.02
CLEANUP_SECONDS = 3.0  # after the first signal, in which others are ignored
MESSAGE = "Interrupted: run the same command again"


class Interrupts:
    """Handle Ctrl-C and SIGTERM from now on, in the main thread of the program."""

    has_work = False  # whether the process has anything to clean up

    def __init__(self) -> None:
        self.first: float | None = None  # time of the first signal
        self._number = signal.SIGINT  # of the signal that was raised
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread receives signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._hear)
        sys.unraisablehook = self._send_again

    def end(self) -> None:
        """Let the next signal end the process at once: nothing is left to clean up."""
        Interrupts.has_work = False
        # Python restores the default handler at exit, which would kill the process.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if not self.has_work and self.first is None:
            with contextlib.suppress(OSError):
                io.FileIO(2, "w", closefd=False).write(f"\n{MESSAGE}\n".encode())
        if not self.has_work or (self.first is not None and now - self.first > CLEANUP_SECONDS):
            os._exit(EXIT_INTERRUPTED)
        if self.first is None:
            self.first, self._number = now, signal.Signals(number)
            raise KeyboardInterrupt

    def _send_again(self, unraisable: Any) -> None:
        """Send the signal again if it came where Python only prints exceptions."""
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            return
        self.first = None
        threading.Timer(RESEND_SECONDS, os.kill, (os.getpid(), self._number)).start()


def leave(code: int) -> NoReturn:
    """End the process as Python does, without freeing its memory: tokenizers take 0.2 s for it."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()  # of the libraries, such as Ray
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
