"""seqpack inspect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from seqpack_cli.cli.options import FOLDER, json_option, quiet_option
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress

MAX_TEXT_IDS = 4096  # of a row that is shown: the first few hundred characters are


@click.command("inspect")
@click.argument("path", type=FOLDER)
@click.option("--batch", type=click.IntRange(min=0), metavar="I", help="Show one batch of shards.")
@click.option(
    "--sequence",
    type=click.IntRange(min=0),
    metavar="I",
    help="Show one sequence by its index in the token store.",
)
@click.option(
    "--plan",
    "wants_plan",
    is_flag=True,
    help="What each layout, batch size and bucket set would cost, from the lengths alone.",
)
@json_option
@quiet_option
def command(
    path: Path,
    batch: int | None,
    sequence: int | None,
    wants_plan: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what is in a token store or in shards.

    \b
    Numbers, lengths and padding:
        seqpack inspect shards
    One batch, and one sequence with its text and where it came from:
        seqpack inspect shards --batch 0
        seqpack inspect tokens --sequence 17
    Batches, padding and bytes of each way to pack:
        seqpack inspect tokens --plan
    """
    from seqpack_cli.reporting import contents, plans, rows, tables

    if [batch is not None, sequence is not None, wants_plan].count(True) > 1:
        raise click.UsageError("--batch, --sequence and --plan are separate questions, ask one")
    opened = contents.open_any(path)
    limit = None if as_json else MAX_TEXT_IDS
    show: Callable[[dict[str, Any]], list[str]] = tables.show_numbers
    if wants_plan:
        with show_progress("plan", "way", quiet=quiet) as progress:
            found, show = plans.compare_plans(opened, progress), plans.show_plans
    elif sequence is not None:
        found, show = (
            rows.describe_sequence(opened, sequence, max_text_ids=limit),
            tables.show_sequence,
        )
    elif batch is not None:
        found = rows.describe_batch(opened, batch, max_text_ids=limit)
        show = tables.show_batch
    else:
        found = contents.describe(opened)
    if as_json:
        print_json(found)
    else:
        print_lines(*show(found))
