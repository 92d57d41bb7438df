"""seqpack export."""

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
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import NATURAL, PLACE
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.wording import count
from seqpack_cli.shards.exports.formats import FORMATS


@click.command("export", cls=GroupedCommand)
@click.argument("path", type=PLACE)
@output_option("Folder (parquet), prefix (megatron) or file (nanogpt) to write.")
@click.option(
    "--to",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Format to write. parquet: a folder of Parquet files, which load_dataset of the package "
    "datasets reads (TRL, axolotl). megatron: PREFIX.bin and PREFIX.idx, one indexed dataset. "
    "nanogpt: one file of uint16 ids without a header.",
)
@click.option(
    "--eos",
    type=NATURAL,
    metavar="ID",
    help="Id that nanogpt writes after each document that does not end with it.  [default: eos_id "
    "in the manifest of PATH]",
)
@overwrite_option
@json_option
@errors_only_option
def command(
    path: Place,
    output: Place,
    to: str,
    eos: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a token store or shards as files that other trainers read.

    PATH is a token store, or shards that pack wrote, such as one split. Documents of a token store
    stay whole, also those that tokenize --max-length cut into several sequences. Shards do not
    know documents: each sequence becomes a document, in the order of the token stores. Shards of
    pairs are refused: unpack writes both sides. The tokenizer is not needed. Every file is read
    back and compared with PATH before it appears.
    megatron and nanogpt write a record beside their files, OUT.export.json: --overwrite replaces
    exactly the files that it describes.

    parquet has one row per sequence: input_ids, attention_mask, labels (-100 where a token is not
    a target; not shifted), and the columns that tokenize --keep made. From shards with --layout
    varlen it has one row per packed row, without padding: input_ids, labels (also -100 at the first
    token of each sequence), seq_lengths, position_ids. megatron and nanogpt hold ids alone.

    \b
    One row per sequence, for axolotl or datasets.load_dataset:
        seqpack export tokens -o dataset
    One row per packed row, for TRL, from shards with --layout varlen:
        seqpack export shards -o dataset
    For nanoGPT:
        seqpack export splits/train -o train.bin --to nanogpt
    """
    from seqpack_cli.shards.exports.export_run import export

    with show_progress("export", "B", quiet=quiet) as progress:
        found = export(path, output, to=to, eos=eos, overwrite=overwrite, progress=progress)
    if as_json:
        print_json(found)
    elif not quiet:
        print_lines(_summarize(output, found))


def _summarize(output: Place, found: dict[str, Any]) -> str:
    """Return the line about a finished export."""
    nouns = {
        name: name[4:-1] for name in ("num_documents", "num_sequences", "num_rows", "num_tokens")
    }
    counts = [count(found[name], noun) for name, noun in nouns.items() if name in found]
    if "num_end_tokens_added" in found:
        counts.append(f"{count(found['num_end_tokens_added'], 'end token')} added")
    return f"{output}: {', '.join(counts)}, {count(len(found['files']), 'file')}"
