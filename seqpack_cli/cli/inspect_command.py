"""seqpack inspect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from seqpack_cli.cli.options import FOLDER, json_option, print_json


@click.command("inspect")
@click.argument("path", type=FOLDER)
@click.option("--batch", type=click.IntRange(min=0), metavar="I", help="Show one batch of shards.")
@click.option(
    "--sequence",
    type=click.IntRange(min=0),
    metavar="I",
    help="Show one sequence by its index in the token store.",
)
@json_option
def command(path: Path, batch: int | None, sequence: int | None, as_json: bool) -> None:
    """Show what is in a token store or in shards.

    \b
    Numbers, lengths and padding:
        seqpack inspect shards
    One batch, and one sequence with its text and where it came from:
        seqpack inspect shards --batch 0
        seqpack inspect tokens --sequence 17
    """
    from seqpack_cli.reporting import contents, rows, tables

    if batch is not None and sequence is not None:
        raise click.UsageError("--batch and --sequence are two questions, ask one")
    opened = contents.open_any(path)
    show: Callable[[dict[str, Any]], list[str]] = tables.show_numbers
    if sequence is not None:
        found, show = rows.describe_sequence(opened, sequence), tables.show_sequence
    elif batch is not None:
        found, show = rows.describe_batch(opened, batch), tables.show_batch
    else:
        found = contents.describe(opened)
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(show(found)))
