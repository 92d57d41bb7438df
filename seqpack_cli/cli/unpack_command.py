"""seqpack unpack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    errors_only_option,
    output_option,
    overwrite_option,
)
from seqpack_cli.cli.output import print_lines, write_stdout
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import PLACE
from seqpack_cli.files.url import Place


@click.command(
    "unpack", cls=OneValueCommand, short_help="Get the ids or the text back out of shards."
)
@click.argument("shards", type=PLACE)
@output_option("File to write, or - for stdout.", is_file=True, takes_stdout=True)
@click.option(
    "--ids/--text",
    "as_ids",
    default=True,
    show_default=True,
    help="Write the token ids of each sequence, or the text decoded from them with the tokenizer "
    "that is kept in the shards, special tokens included.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="Format of the file: JSON lines, or Parquet with the columns index, ids or text, and one "
    "for each column of the token stores.",
)
@overwrite_option
@errors_only_option
def command(
    shards: Place, output: Place, as_ids: bool, file_format: str, overwrite: bool, quiet: bool
) -> None:
    """Write the sequences of shards as JSON lines or Parquet, in the order of the token stores.

    The inverse of `seqpack pack`: batches are taken apart, padding is removed, and pieces of a
    sequence that pack cut are joined (those that tokenize cut are sequences of their own; tokens
    that tokenize --overlap repeated are written once, as those of the earlier piece).
    Sequences that pack dropped are missing; those that it packed several times (--passes) are
    compared and written once. A folder of splits is refused: name one of them, such as
    splits/train. Token stores are not needed. If they have columns (tokenize --keep),
    each line has their values too: names of classes, and a list for tags.

    \b
    Token ids, one line per sequence, {"index": 0, "ids": [72, 105]}:
        seqpack unpack shards -o rows.jsonl
    Text, {"index": 0, "text": "Hi", "columns": {"label": "greeting"}}, printed to stdout:
        seqpack unpack shards --text -o -
    Parquet:
        seqpack unpack shards --format parquet -o rows.parquet
    """
    from seqpack_cli.shards.shard_set import open_shards
    from seqpack_cli.shards.unpack_run import unpack, write_sequences

    how: dict[str, Any] = {"as_text": not as_ids, "file_format": file_format}
    with show_progress("unpack", "row", quiet=quiet) as progress:
        if str(output) == "-":
            opened = open_shards(shards)
            write_sequences(opened, write_stdout, progress=progress, **how)
            return
        num_rows = unpack(shards, output, overwrite=overwrite, progress=progress, **how)
    if not quiet:
        print_lines(f"{output}: {num_rows:,} sequences")
