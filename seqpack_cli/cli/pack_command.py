"""seqpack pack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.cli.options import (
    BUCKETS,
    PLACE,
    POSITIVE,
    SIZE,
    output_option,
    run_options,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.files.url import Place
from seqpack_cli.runs.workers import Executor


@click.command("pack")
@click.argument("store", type=PLACE)
@output_option("Folder of the shards.")
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default="packed",
    show_default=True,
    help="packed: torch's PackedSequence; padded: a rectangle; varlen: several sequences in a row.",
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    help="Rows of a batch at most.  [default: 64, without --max-tokens]",
)
@click.option(
    "--max-tokens",
    type=POSITIVE,
    help="Tokens of a batch at most; padded counts all cells, in varlen a batch is one row.",
)
@click.option(
    "--order",
    type=click.Choice(["length", "none"]),
    default="length",
    show_default=True,
    help="Which sequences go together: longest first, or as they come.",
)
@click.option("--window", type=POSITIVE, metavar="N", help="Sort only inside runs of N sequences.")
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Shuffle sequences before, batches after.  [default: on for best-fit, else off]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --shuffle."
)
@click.option(
    "--buckets",
    type=BUCKETS,
    help="Rows of a batch share a bucket: lengths, or auto for those that waste least.",
)
@click.option("--num-buckets", type=POSITIVE, help="Buckets that auto may use.  [default: 8]")
@click.option(
    "--fill",
    type=click.Choice(["best-fit", "sequential"]),
    help="How varlen fills rows; sequential keeps the order.  [default: best-fit]",
)
@click.option(
    "--overflow",
    type=click.Choice(["error", "drop", "split"]),
    help="A sequence that does not fit.  [default: varlen split, --buckets drop, else error]",
)
@click.option(
    "--last-batch",
    type=click.Choice(["keep", "drop", "pad"]),
    default="keep",
    show_default=True,
    help="A last batch, of each bucket, that is not full; pad fills it with empty rows.",
)
@click.option("--drop-shorter", type=POSITIVE, help="Drop shorter sequences, counted.")
@click.option("--drop-longer", type=POSITIVE, help="Drop longer sequences, counted.")
@click.option(
    "--pad-to-multiple", type=POSITIVE, default=1, metavar="M", help="Round widths up to this."
)
@click.option(
    "--padding-side",
    type=click.Choice(["right", "left"]),
    default="right",
    show_default=True,
    help="Where a row is padded.",
)
@click.option("--pad-id", type=int, help="Id in padding cells.  [default: the tokenizer's, or 0]")
@click.option(
    "--shard-bytes", type=SIZE, default="64MiB", show_default=True, help="Size of a shard at most."
)
@run_options
def command(
    store: Place,
    output: Place,
    executor: Executor,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Turn a token store into shards: batches of sequences of similar lengths.

    \b
    Batches of 64 rows as PackedSequence:
        seqpack pack tokens -o shards
    Padded batches of at most 16,384 cells, in random order but of similar lengths:
        seqpack pack tokens --layout padded --max-tokens 16384 --shuffle --window 4096 -o shards
    Rectangles of eight widths and fixed heights, for torch.compile:
        seqpack pack tokens --layout padded --buckets auto --last-batch pad -o shards
    Rows of at most 2,048 tokens that share whole sequences:
        seqpack pack tokens --layout varlen --max-tokens 2048 -o shards
    What each choice would cost:
        seqpack plan tokens
    """
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.reporting.terminal.summaries import summarize_pack
    from seqpack_cli.shards.pack_run import pack_store

    with show_progress("pack", "token", quiet=quiet) as progress:
        manifest, was_complete = pack_store(
            store,
            output,
            PackOptions(**options),
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        print_lines(*summarize_pack(output, manifest, was_complete=was_complete))
