"""seqpack unpack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    errors_only_option,
    json_option,
    output_option,
    overwrite_option,
)
from seqpack_cli.cli.output import print_json, print_lines, write_stdout
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import PLACE
from seqpack_cli.errors import OptionError
from seqpack_cli.files.url import Place


@click.command("unpack", cls=OneValueCommand)
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
@json_option
@errors_only_option
def command(
    shards: Place,
    output: Place,
    as_ids: bool,
    file_format: str,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the sequences of shards as JSON lines or Parquet, in the order of the token stores.

    The inverse of `seqpack pack`: batches are taken apart, padding is removed, and pieces of a
    sequence that pack cut are joined. A document that tokenize --max-length cut stays several
    sequences; tokens that --overlap repeated are written once, in the earlier of them. Sequences
    that pack dropped are missing; those that it packed several times (--passes) are compared and
    written once. Columns of the token stores (tokenize --keep) are written too: a class as its
    name, tags as a list. The token stores are not needed. A folder of splits is refused: name one
    of them, such as splits/train.

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

    if as_json and str(output) == "-":
        raise OptionError(
            "--json conflicts with -o -, which prints the rows", hint="leave out --json"
        )
    how: dict[str, Any] = {"as_text": not as_ids, "file_format": file_format}
    with show_progress("unpack", "row", quiet=quiet) as progress:
        if str(output) == "-":
            opened = open_shards(shards)
            write_sequences(opened, write_stdout, progress=progress, **how)
            return
        num_rows = unpack(shards, output, overwrite=overwrite, progress=progress, **how)
    if as_json:
        print_json({"num_sequences": num_rows, "file": str(output)})
    elif not quiet:
        print_lines(f"{output}: {num_rows:,} sequences")
