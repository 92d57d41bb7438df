"""stdout and stderr of the program, of which no failure looks like a result of the command.

stderr carries notes, bars and errors: what cannot be written there is lost, and the work goes on.
stdout carries answers: what cannot be written there is an error of its own, with exit code 5. That
its reader has gone, as `head` does, is left to whoever writes.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from seqpack_cli.errors import MachineError


class OutputError(Exception):
    """Raised by a write to stdout that failed; later ones do nothing."""

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
                self._has_failed = True  # what is still in buffers is flushed at the end
                raise OutputError(error) from error
        return len(data)


class _Stderr(io.FileIO):
    def write(self, data: Any) -> int:
        """Write, or do nothing."""
        try:
            written: int | None = super().write(data)  # None where a terminal takes no more
        except OSError:
            written = None
        return len(data) if written is None else written


def open_standard_streams() -> None:
    """Set up a stdout and a stderr that behave as this module says, closed ones too.

    The numbers 0 to 2 are taken in any case: a file that was given one of them would be written to
    by every library that complains.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed; as stdout a file that cannot be written stands for that
            opened = os.open(os.devnull, flags)  # takes the lowest number, which is this one
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
