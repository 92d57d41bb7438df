"""Print what a command shows: JSON, or lines of text with control characters escaped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from seqpack_cli.cli.process import OutputError
from seqpack_cli.errors import MachineError, escape_controls
from seqpack_cli.reporting.terminal.styles import StyledLine


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines on stdout or stderr; control characters in names and texts are escaped."""
    shown = (line if isinstance(line, StyledLine) else escape_controls(line) for line in lines)
    _print("\n".join(shown), err=err)


def wants_colour() -> bool:
    """Return whether stdout shows colours: a terminal, unless NO_COLOR or FORCE_COLOR is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name that is not Unicode
        text = json.dumps(value, indent=1, allow_nan=False)
    _print(text)


def print_result(
    found: dict[str, Any], lines: Callable[[], Iterable[str]], *, as_json: bool, quiet: bool = False
) -> None:
    """Print what a command found or made, as JSON or as lines."""
    if as_json:
        print_json(found)
    elif not quiet:
        print_lines(*lines())


def write_stdout(data: bytes) -> None:
    """Write bytes to stdout.

    Raises:
        OutputError: they cannot be written, or the reader has closed the pipe.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OutputError as error:
        error.exit_code = MachineError.exit_code  # the reader did not get all of them
        raise


def _print(text: str, *, err: bool = False) -> None:
    try:
        click.echo(text, err=err, color=True)  # colours are left out by who makes the lines
    except OutputError as error:
        if not error.reader_has_gone:  # the reader stopped reading, but the work is done
            raise
