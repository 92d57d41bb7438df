"""seqpack pack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.batching.layout_rules import LAYOUTS
from seqpack_cli.cli.options import OneValueCommand, decoder_option, output_option, run_options
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.selection_options import selection_options
from seqpack_cli.cli.values import BUCKETS, NATURAL, PLACE, POSITIVE, SIZE
from seqpack_cli.files.places import Place
from seqpack_cli.runs.workers import Executor


@click.command("pack", cls=OneValueCommand)
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@output_option("Folder to create for the shards.")
@decoder_option
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default="packed",
    show_default=True,
    help="Form of a batch. packed: data and batch_sizes of torch's PackedSequence; padded: rows "
    "of one width, filled up with the pad id; varlen: rows of several sequences, with cu_seqlens "
    "(where each sequence begins, as FlashAttention takes it); streams: the next --max-tokens "
    "steps of --batch-size parallel streams, for recurrent networks that carry their state.",
)
@click.option(
    "--batch-size",
    type=POSITIVE,
    help="Maximum number of sequences in a batch; for varlen, the number of rows, which are then "
    "filled up to --max-tokens with the pad id; for streams, the number of streams.  [default: 64, "
    "or no limit with --max-tokens; varlen: one row without padding]",
)
@click.option(
    "--max-tokens",
    type=POSITIVE,
    help="Maximum number of tokens in a batch; for padded, padding counts too; for varlen, the "
    "maximum length of a row, and for streams, the steps of a batch (required for both).  "
    "[default: no limit]",
)
@click.option(
    "--count",
    type=click.Choice(["max", "sum"]),
    help="What --max-tokens counts of pairs: the larger of both sides, or their sum.  "
    "[default: max]",
)
@click.option(
    "--order",
    type=click.Choice(["length", "none"]),
    default="length",
    show_default=True,
    help="length: sort the sequences by length, longest first, so that a batch holds sequences of "
    "similar length (pairs: by the length of the encoder's side, then of the decoder's); none: "
    "take them as they are in the store or, with --shuffle, at random. Rows of a packed or padded "
    "batch are sorted by length either way. varlen and streams follow --fill instead.",
)
@click.option(
    "--window",
    type=POSITIVE,
    metavar="N",
    help="Sort by length only within windows of N consecutive sequences, so that with --shuffle "
    "batches stay random; not for varlen and streams.  [default: all sequences]",
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
    help="Random seed for --shuffle, and for the documents that a fraction of --passes, or of the "
    "passes that --share chooses, takes.",
)
@click.option(
    "--buckets",
    type=BUCKETS,
    metavar=BUCKETS.name,
    help="Bucket lengths, such as 32,64,128. Each sequence goes into the smallest bucket that "
    "holds it, and a batch takes sequences of one bucket only; padded rows get the bucket's "
    "length as width. Of pairs each bucket has two lengths, such as '(10,15),(20,25)'. auto: "
    "choose lengths that need little padding. Not for varlen and streams.  "
    "[default: no buckets]",
)
@click.option(
    "--num-buckets",
    type=POSITIVE,
    help="Maximum number of buckets for --buckets auto. Pairs have at most one for every five "
    "batches.  [default: 8, for pairs 1024]",
)
@click.option(
    "--fill",
    type=click.Choice(["best-fit", "sequential", "chunk"]),
    help="How varlen fills its rows. best-fit: put each sequence into the row with the least room "
    "that is enough, for the fewest rows; sequential: fill one row after another in the order of "
    "the store (or of --shuffle), and start a new row for a sequence that does not fit; chunk: "
    "the same, but cut a sequence wherever a row ends, so that every row but the last is full. "
    "streams are always cut.  [default: best-fit]",
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
    "--batch-size or --buckets). varlen with --batch-size: keep, or pad with empty rows.",
)
@selection_options
@click.option(
    "--pad-to-multiple",
    type=POSITIVE,
    default=1,
    metavar="M",
    help="For padded, round the width of batches and of automatic buckets up to a multiple of M; "
    "lengths given in --buckets must be multiples.  [default: no rounding]",
)
@click.option(
    "--align-sequences",
    type=POSITIVE,
    default=1,
    metavar="M",
    help="For varlen, fill up each sequence with the pad id to a multiple of M, for example to "
    "2 x the number of ranks of context parallelism.  [default: no rounding]",
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
    help="Token id of the padding.  [default: the tokenizer's pad token, or 0; required for padded "
    "if the store has neither a tokenizer nor a pad id]",
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
    decoder: tuple[Place, ...],
    executor: Executor,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Pack token stores into shards: files of batches that are ready to train on.

    STORE is a folder that tokenize or import wrote; several are packed as one, if they have the
    same tokenizer. Sequences of similar length share a batch; varlen rows hold any. The same
    command again continues an interrupted run. Read shards with seqpack_cli.ShardDataset.

    \b
    Batches of 64 sequences as torch's PackedSequence:
        seqpack pack tokens -o shards
    Padded batches of at most 16,384 tokens (padding included), in random order:
        seqpack pack tokens --layout padded --max-tokens 16384 --shuffle --window 4096 -o shards
    Padded batches of at most eight different shapes, for torch.compile:
        seqpack pack tokens --layout padded --buckets auto --last-batch pad -o shards
    Rows of at most 2,048 tokens that several sequences share, for a transformer:
        seqpack pack tokens --layout varlen --max-tokens 2048 -o shards
    64 parallel streams, 128 steps a batch, for an LSTM that carries its state:
        seqpack pack tokens --layout streams --batch-size 64 --max-tokens 128 -o shards
    A training set and a validation set, below the folder shards:
        seqpack pack tokens --split train=0.99,validation=0.01 -o shards
    Pairs: each batch holds the same documents of two stores, for encoder and decoder:
        seqpack pack english --decoder german -o shards
    Two stores, one of them visited twice:
        seqpack pack books web --passes books=2 --shuffle --window 4096 -o shards
    """
    from seqpack_cli.batching.pack_options import PackOptions
    from seqpack_cli.shards.pack_run import pack

    with show_progress("pack", "token", quiet=quiet) as progress:
        manifest, was_complete = pack(
            stores,
            output,
            PackOptions(**options),
            decoder=decoder or None,
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json or not quiet:
        _print_done(output, manifest, was_complete=was_complete, as_json=as_json)


def _print_done(
    output: Place, manifest: dict[str, Any], *, was_complete: bool, as_json: bool
) -> None:
    """Print what shards, or all splits, hold."""
    from seqpack_cli.reporting.selection_counts import describe_splits
    from seqpack_cli.reporting.terminal.summaries import summarize_pack
    from seqpack_cli.shards.split_manifest import open_splits

    if "splits" in manifest:
        manifest = {**manifest, **describe_splits(open_splits(output))}
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    else:
        print_lines(*summarize_pack(output, manifest, was_complete=was_complete))
