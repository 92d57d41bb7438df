"""What commands print: JSON, or lines for people in which no file can move the cursor."""

from __future__ import annotations

import json
from typing import Any

import click

from seqpack_cli.errors import escape_controls


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines on stdout or stderr; a name or text from a file may hold anything."""
    click.echo("\n".join(map(escape_controls, lines)), err=err)


def print_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is no Unicode text
        text = json.dumps(value, indent=1, allow_nan=False)
    click.echo(text)
