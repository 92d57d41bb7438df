"""seqpack pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seqpack_cli.cli.options import (
    FOLDER,
    POSITIVE,
    SIZE,
    json_option,
    num_workers_option,
    output_option,
    overwrite_option,
    print_json,
    quiet_option,
)
from seqpack_cli.cli.progress import show_progress


@click.command("pack")
@click.argument("store", type=FOLDER)
@output_option("Folder of the shards.")
@click.option(
    "--layout",
    type=click.Choice(["packed", "padded"]),
    default="packed",
    show_default=True,
    help="packed: torch's PackedSequence; padded: a rectangle.",
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    help="Rows of a batch at most.  [default: 64, without --max-tokens]",
)
@click.option(
    "--max-tokens",
    type=POSITIVE,
    help="Tokens of a batch at most; padded counts all cells.",
)
@click.option("--min-length", type=POSITIVE, help="Drop shorter sequences, counted.")
@click.option("--max-length", type=POSITIVE, help="Drop longer sequences, counted.")
@click.option(
    "--last-batch",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="A last batch that is not full.",
)
@click.option("--pad-id", type=int, help="Id in padding cells.  [default: the tokenizer's, or 0]")
@click.option(
    "--shard-bytes", type=SIZE, default="64MiB", show_default=True, help="Size of a shard at most."
)
@num_workers_option
@overwrite_option
@json_option
@quiet_option
def command(
    store: Path,
    output: Path,
    num_workers: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn a token store into shards, longest sequences first.

    \b
    Batches of 64 rows as PackedSequence:
        seqpack pack tokens -o shards
    Padded batches of at most 16,384 cells:
        seqpack pack tokens --layout padded --max-tokens 16384 -o shards
    """
    from seqpack_cli.reporting.summaries import summarize_pack
    from seqpack_cli.shards.pack_run import PackOptions, pack_store

    with show_progress("pack", "token", quiet=quiet) as progress:
        manifest, was_complete = pack_store(
            store,
            output,
            PackOptions(**options),
            num_workers=num_workers,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        click.echo("\n".join(summarize_pack(output, manifest, was_complete=was_complete)))
