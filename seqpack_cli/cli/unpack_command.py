"""seqpack unpack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    GroupedCommand,
    errors_only_option,
    json_option,
    output_option,
    overwrite_option,
)
from seqpack_cli.cli.output import print_json, print_lines, write_stdout
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.side_option import side_option
from seqpack_cli.cli.values import PLACE
from seqpack_cli.errors import OptionError
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.wording import count


@click.command("unpack", cls=GroupedCommand)
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
    "for each column of the token stores; of pairs also those of the decoder, as decoder.index.",
)
@side_option("For shards of pairs, write only this side: line n of both files is the same pair.")
@overwrite_option
@json_option
@errors_only_option
def command(
    shards: Place,
    output: Place,
    as_ids: bool,
    file_format: str,
    side: str | None,
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
    Pairs, {"index": 0, "text": "Hi", "decoder": {"index": 0, "text": "Salut"}}:
        seqpack unpack shards --text -o pairs.jsonl
    """
    from seqpack_cli.shards.shard_set import open_shards
    from seqpack_cli.shards.unpack_run import choose_side, unpack, write_sequences

    if as_json and str(output) == "-":
        raise OptionError(
            "--json conflicts with -o -, which prints the rows", hint="leave out --json"
        )
    how: dict[str, Any] = {"as_text": not as_ids, "file_format": file_format}
    with show_progress("unpack", "row", quiet=quiet) as progress:
        opened = choose_side(open_shards(shards), side)
        if str(output) == "-":
            write_sequences(opened, write_stdout, progress=progress, **how)
            return
        how |= {"side": side, "overwrite": overwrite}
        num_rows = unpack(shards, output, progress=progress, **how)
    noun = "sequence" if opened.decoder is None else "pair"
    if as_json:
        print_json({f"num_{noun}s": num_rows, "file": str(output)})
    elif not quiet:
        print_lines(f"{output}: {count(num_rows, noun)}")
