"""Print what a command shows: JSON, or lines of text with control characters escaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from seqpack_cli.cli.streams import OutputError
from seqpack_cli.errors import MachineError, escape_controls
from seqpack_cli.files.url import Place


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines on stdout or stderr; control characters in names and texts are escaped."""
    _print("\n".join(map(escape_controls, lines)), err=err)


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name that is not Unicode
        text = json.dumps(value, indent=1, allow_nan=False)
    _print(text)


def print_answer(
    found: dict[str, Any],
    show: Callable[[dict[str, Any]], list[str]],
    *,
    written: Sequence[Place | None] = (),
    as_json: bool,
    quiet: bool,
) -> None:
    """Print values as JSON or as lines; where files were written instead, print their names."""
    files = [file for file in written if file is not None]
    if as_json:
        print_json(found)
    elif not files:
        print_lines(*show(found))
    elif not quiet:
        print_lines(*(f"{file}: written" for file in files))


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
        click.echo(text, err=err)
    except OutputError as error:
        if not error.reader_has_gone:  # the reader stopped reading, but the work is done
            raise
