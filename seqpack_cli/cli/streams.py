"""stdout and stderr of the program, whose failures never look like a result of the command.

stderr carries notes, bars and errors: a failed write there is ignored, and the work goes on. stdout
carries results: a failed write there is an OutputError with exit code 5. A closed pipe, as after
`head`, is marked in the error, and the writer decides what it means.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from seqpack_cli.errors import MachineError


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
