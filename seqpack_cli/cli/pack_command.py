"""seqpack pack."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.batching.options import BATCHES, ROWS, WHICH, PackOptions
from seqpack_cli.cli.options import (
    GroupedCommand,
    decoder_option,
    options_of,
    output_option,
    pop_executor,
    run_options,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import PLACE
from seqpack_cli.files.places import Place
from seqpack_cli.runs.options import RUN


@click.command("pack", cls=GroupedCommand, groups=(BATCHES, ROWS, WHICH, RUN))
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@output_option("Folder to create for the shards.")
@options_of(PackOptions)
@decoder_option
@run_options
def command(
    stores: tuple[Place, ...],
    output: Place,
    decoder: tuple[Place, ...],
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
    from seqpack_cli.shards.pack_run import pack

    executor = pop_executor(options)
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
