"""The process of a command: its signals, stdout and stderr, and its progress bar.

Before a command's work begins there is nothing to clean up, and a signal ends the process at once:
many packages do not survive an interrupt during their import. After that, the first signal raises
KeyboardInterrupt, so that files are closed and temporary ones removed. Signals within the next
seconds, from a second Ctrl-C or a scheduler, are ignored; a later one ends the process at once. A
signal that was ignored from the start, as SIGINT is in a shell's background jobs, stays ignored.

stderr carries notes, bars and errors: a failed write there is ignored, and the work goes on. stdout
carries results: a failed write there is an OutputError with exit code 5. A closed pipe, as after
`head`, is marked in the error, and the writer decides what it means.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from seqpack_cli.errors import MachineError, escape_controls

if TYPE_CHECKING:
    from seqpack_cli.runs.workers import Progress

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


class OutputError(Exception):
    """The first failed write to stdout; later writes do nothing."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror or str(cause))
        self.reader_has_gone = cause.errno == errno.EPIPE
        self.exit_code = 0 if self.reader_has_gone else MachineError.exit_code


class _Stdout(io.FileIO):
    _has_failed = False

    def write(self, data: Any) -> int:
        """Write, or raise OutputError once."""
        if not self._has_failed:
            try:
                return super().write(data)
            except OSError as error:
                self._has_failed = True  # the buffers are flushed once more at exit
                raise OutputError(error) from error
        return len(data)


class _Stderr(io.FileIO):
    def write(self, data: Any) -> int:
        """Write; ignore a failure."""
        try:
            written: int | None = super().write(data)  # None: a non-blocking terminal is full
        except OSError:
            written = None
        return len(data) if written is None else written


def open_standard_streams() -> None:
    """Replace stdout and stderr by streams that behave as described above, also if they are closed.

    Closed descriptors 0 to 2 are opened on /dev/null: otherwise the next file that is opened would
    get such a number, and libraries that print warnings would write into it.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed; stdout gets a file that cannot be written
            opened = os.open(os.devnull, flags)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
    sys.stdout = _open(_Stdout(1, "w", closefd=False), sys.stdout)
    sys.stderr = _open(_Stderr(2, "w", closefd=False), sys.stderr)


def _open(raw: io.FileIO, before: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", "utf-8"),
        errors=getattr(before, "errors", "backslashreplace"),
        line_buffering=True,
    )


def leave(code: int) -> NoReturn:
    """End the process as Python does, without freeing its memory: tokenizers take 0.2 s for it."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads
    atexit._run_exitfuncs()  # of the libraries, such as Ray
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


@contextlib.contextmanager
def show_progress(name: str, unit: str, *, quiet: bool) -> Iterator[Progress]:
    """Show the progress of a run; yield the callbacks that it reports to.

    Args:
        unit: what is counted, "B" for bytes.
    """
    import click
    from tqdm import tqdm

    from seqpack_cli.runs.workers import Progress

    Interrupts.has_work = True  # the command's imports are done
    hidden = quiet or not sys.stderr.isatty()
    with tqdm(
        desc=name, unit=unit, unit_scale=True, total=0, disable=hidden, leave=False, file=sys.stderr
    ) as bar:
        num_tokens = 0

        def start(total: int) -> None:
            nonlocal num_tokens
            num_tokens = 0
            bar.reset(total)

        def notice(text: str) -> None:
            if not quiet:
                with tqdm.external_write_mode(file=sys.stderr):
                    click.echo(escape_controls(f"note: {text}"), err=True)

        def count_tokens(more: int) -> None:
            nonlocal num_tokens
            num_tokens += more
            seconds = max(bar.format_dict["elapsed"], 1e-3)
            bar.set_postfix_str(f"{tqdm.format_sizeof(num_tokens / seconds)} tokens/s", False)

        yield Progress(
            on_total=start, on_advance=bar.update, on_tokens=count_tokens, on_notice=notice
        )
        if not hidden and bar.n:
            bar.clear()
            seconds = bar.format_dict["elapsed"]
            click.echo(_summarize(name, unit, bar.n, num_tokens, seconds), err=True)


def _summarize(name: str, unit: str, amount: float, num_tokens: int, seconds: float) -> str:
    """Return the final line, which replaces the bar.

    >>> _summarize("tokenize", "B", 50e6, 12_000_000, 2.0)
    'tokenize: 50.0 MB in 2.0 s, 25.0 MB/s, 6.00 M tokens/s'
    """
    from tqdm import tqdm

    def scale(number: float) -> str:
        digits = tqdm.format_sizeof(number).lstrip()
        return f"{digits[:-1]} {digits[-1]}" if digits[-1].isalpha() else f"{digits} "

    seconds = max(seconds, 1e-3)
    parts = [f"{scale(amount)}{unit} in {seconds:.1f} s", f"{scale(amount / seconds)}{unit}/s"]
    if num_tokens:
        parts.append(f"{scale(num_tokens / seconds)} tokens/s")
    return f"{name}: {', '.join(parts)}"
