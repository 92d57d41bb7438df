"""seqpack pack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.cli.options import OneValueCommand, output_option, run_options
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import BUCKETS, NATURAL, PLACE, POSITIVE, SIZE
from seqpack_cli.files.url import Place
from seqpack_cli.runs.workers import Executor


@click.command(
    "pack", cls=OneValueCommand, short_help="Turn a token store into batches for training."
)
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@output_option("Folder to create for the shards.")
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default="packed",
    show_default=True,
    help="Form of a batch. packed: data and batch_sizes of torch's PackedSequence; padded: rows "
    "of one width, filled up with the pad id; varlen: one row of several sequences without "
    "padding, with cu_seqlens (where each sequence begins, as FlashAttention takes it).",
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    help="Maximum number of sequences in a batch; not for varlen.  [default: 64, or no limit with "
    "--max-tokens]",
)
@click.option(
    "--max-tokens",
    type=POSITIVE,
    help="Maximum number of tokens in a batch; for padded, padding counts too; for varlen, the "
    "maximum length of a row (required).  [default: no limit]",
)
@click.option(
    "--order",
    type=click.Choice(["length", "none"]),
    default="length",
    show_default=True,
    help="length: sort the sequences by length, longest first, so that a batch holds sequences of "
    "similar length; none: take them as they are in the store or, with --shuffle, at random. Rows "
    "of a packed or padded batch are sorted by length either way. Not for varlen.",
)
@click.option(
    "--window",
    type=POSITIVE,
    metavar="N",
    help="Sort by length only within windows of N consecutive sequences, so that with --shuffle "
    "batches stay random; not for varlen.  [default: all sequences]",
)
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Shuffle the sequences before sorting, and the finished batches. Without it, batches are "
    "stored longest first. Which sequences share a batch is fixed here; in training, "
    "seqpack_cli.EpochSampler gives whole batches a new order in each epoch.  [default: on for "
    "varlen with --fill best-fit, which sorts, else off]",
)
@click.option(
    "--seed",
    type=NATURAL,
    default=0,
    show_default=True,
    help="Random seed for --shuffle, and for the documents that a fraction of --passes takes.",
)
@click.option(
    "--buckets",
    type=BUCKETS,
    help="Bucket lengths, such as 32,64,128. Each sequence goes into the smallest bucket that "
    "holds it, and a batch takes sequences of one bucket only; padded rows get the bucket's "
    "length as width. auto: choose the lengths that need the least padding. Not for varlen.  "
    "[default: no buckets]",
)
@click.option(
    "--num-buckets",
    type=POSITIVE,
    help="Maximum number of buckets for --buckets auto.  [default: 8]",
)
@click.option(
    "--fill",
    type=click.Choice(["best-fit", "sequential"]),
    help="How varlen fills its rows. best-fit: put each sequence into the row with the least room "
    "that is enough, for the fewest rows; sequential: fill one row after another in the order of "
    "the store (or of --shuffle), and start a new row for a sequence that does not fit.  "
    "[default: best-fit]",
)
@click.option(
    "--overflow",
    type=click.Choice(["error", "drop", "split"]),
    help="What to do with a sequence longer than --max-tokens or the largest bucket: stop with an "
    "error, drop it (counted), or, for varlen, split it into pieces that are placed like "
    "sequences of their own.  [default: varlen: split; longer than the largest bucket: drop; "
    "otherwise: error]",
)
@click.option(
    "--last-batch",
    type=click.Choice(["keep", "drop", "pad"]),
    default="keep",
    show_default=True,
    help="What to do with the last batch (of each bucket) if more sequences would fit into it: "
    "keep it, drop it (counted), or, for padded, add empty rows up to the number that fits (with "
    "--batch-size or --buckets). Not for varlen.",
)
@click.option(
    "--drop-shorter",
    type=POSITIVE,
    help="Before anything else, drop sequences of fewer than N tokens (counted).  [default: none]",
)
@click.option(
    "--drop-longer",
    type=POSITIVE,
    help="Before anything else, drop sequences of more than N tokens (counted).  [default: none]",
)
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Pack only sequences for which CONDITION holds, such as 'lang = de', 'label != 3', "
    "'@length >= 8' or '@source = corpus/a*'; other sequences are counted as dropped. A name is a "
    "column of the store (see tokenize --keep), @length (number of tokens) or @source (path of the "
    "input file as recorded in the manifest; * matches any characters). Operators: = != < <= > >=; "
    "for text, classes and @source only = and !=. Put quotes around a name with = ! < > in it, and "
    "around a value that begins or ends with a space. Repeat the option for several conditions: "
    "all must hold.  [default: all sequences]",
)
@click.option(
    "--split",
    metavar="NAME=SHARE,...",
    help="Write a shard set for each split into its own folder below the output, such as "
    "train=0.98,validation=0.01,test=0.01; the shares add up to 1, and one may be rest. The hash "
    "of a document's text decides its split, so it stays there when documents are added, and "
    "equal documents are in the same split.  [default: one shard set]",
)
@click.option(
    "--split-seed",
    type=NATURAL,
    default=0,
    show_default=True,
    help="Random seed for --split.",
)
@click.option(
    "--split-by",
    metavar="COLUMN",
    help="Split by the values of a column (see tokenize --keep), not by documents: sequences with "
    "the same value are in the same split. With --split NAME,NAME (no shares), the values are the "
    "names of the splits.",
)
@click.option(
    "--passes",
    metavar="STORE=N,...",
    help="How often each sequence of a store is packed, such as A=2,B=0.5; a store is named by its "
    "folder, or by its position from 1. A fraction takes the documents that their hash and --seed "
    "choose; 2.5 visits all documents twice, and half of them a third time. Visits of one sequence are "
    "never in the same batch. With --split, only the first split has passes.  [default: 1 for "
    "each store]",
)
@click.option(
    "--share",
    metavar="STORE=SHARE,...",
    help="Choose the passes so that each store has its share of all tokens, such as A=0.7,B=rest.",
)
@click.option(
    "--max-passes",
    metavar="N",
    help="Maximum number of passes of a store with --share.  [default: 1]",
)
@click.option(
    "--store-column",
    metavar="NAME",
    help="Add a column of classes with the store of each sequence, for a loss per store.",
)
@click.option(
    "--drop-column",
    multiple=True,
    metavar="NAME",
    help="Leave out a column of the stores; columns that not all stores have must be left out. "
    "Repeat the option for several.",
)
@click.option(
    "--pad-to-multiple",
    type=POSITIVE,
    default=1,
    metavar="M",
    help="For padded, round the width of batches and of automatic buckets up to a multiple of M; "
    "lengths given in --buckets must be multiples.  [default: no rounding]",
)
@click.option(
    "--padding-side",
    type=click.Choice(["right", "left"]),
    default="right",
    show_default=True,
    help="For padded, the side of each row where the padding goes.",
)
@click.option(
    "--pad-id",
    type=int,
    help="Token id of the padding.  [default: the tokenizer's pad token, or 0]",
)
@click.option(
    "--shard-bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="Maximum size of a shard file.",
)
@run_options
def command(
    stores: tuple[Place, ...],
    output: Place,
    executor: Executor,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Pack a token store into shards: files of batches that are ready to train on.

    STORE is a folder that `seqpack tokenize` wrote. By default sequences of similar length go into
    one batch (see --order); with --layout varlen, rows are filled with sequences of any length. An
    option that does not apply to the layout is an error. What is dropped is counted in the summary.
    Running the same command again continues an interrupted run; with other options it is an error
    unless --overwrite is given. In training code, read the shards with
    seqpack_cli.ShardDataset("shards").

    \b
    Batches of 64 sequences as torch's PackedSequence:
        seqpack pack tokens -o shards
    Padded batches of at most 16,384 tokens (padding included), in random order:
        seqpack pack tokens --layout padded --max-tokens 16384 --shuffle --window 4096 -o shards
    Padded batches of at most eight different shapes, for torch.compile:
        seqpack pack tokens --layout padded --buckets auto --last-batch pad -o shards
    Rows of at most 2,048 tokens that several sequences share, for a transformer:
        seqpack pack tokens --layout varlen --max-tokens 2048 -o shards
    What each way to pack would cost:
        seqpack plan tokens
    """
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.reporting.terminal.summaries import summarize_pack
    from seqpack_cli.shards.pack_run import pack

    with show_progress("pack", "token", quiet=quiet) as progress:
        manifest, was_complete = pack(
            stores,
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
