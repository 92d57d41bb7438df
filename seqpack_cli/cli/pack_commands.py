"""seqpack plan, pack, unpack and export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.batching.options import BATCHES, ROWS, WHICH, PackOptions
from seqpack_cli.cli.options import (
    NATURAL,
    PLACE,
    GroupedOption,
    grouped_command,
    options_of,
    output_option,
    plot_option,
    run_options,
    show_options,
    side_option,
    write_options,
)
from seqpack_cli.cli.output import print_result, write_stdout
from seqpack_cli.cli.process import show_progress
from seqpack_cli.errors import OptionError
from seqpack_cli.reporting.wording import count
from seqpack_cli.runs.options import RUN, make_options
from seqpack_cli.runs.workers import Executor

if TYPE_CHECKING:
    from seqpack_cli.files.places import Place  # not for --help

decoder_option = click.option(
    "--decoder",
    type=PLACE,
    multiple=True,
    metavar="STORE",
    cls=GroupedOption,
    group=WHICH,
    help="Token store of the decoder's side: its documents and those of STORE are packed as pairs. "
    "Once for each STORE.  [default: single sequences]",
)


@grouped_command("plan")
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@decoder_option
@plot_option("Write a picture of the comparison to FILE instead of printing it.")
@options_of(PackOptions, only=("keep_without_target",))
@show_options
def plan_command(
    stores: tuple[Place, ...],
    decoder: tuple[Place, ...],
    plot: Place | None,
    keep_without_target: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare the ways to pack a token store, or several as one, before packing.

    For each layout and a fixed list of batch sizes, buckets and row lengths (--batch-size,
    --buckets and --max-tokens of `seqpack pack`): the number of batches, the share of padding, and
    the size of the shards. Other options have their defaults: without splits, conditions or passes,
    all sequences that have a target are packed once. --shuffle with --window needs more padding.
    Only the lengths of the sequences are read, and their targets if a store has them. With
    --decoder, the ways to pack pairs, with the padding of both sides and of each; a pair of which a
    side is empty is left out.

    \b
    As a table:
        seqpack plan tokens
    As a picture:
        seqpack plan tokens --plot plan.svg
    Pairs of two stores:
        seqpack plan english --decoder german
    """
    from seqpack_cli.reporting.plans import plan
    from seqpack_cli.reporting.terminal.plan_lines import show_plans

    if plot is not None:
        from seqpack_cli.reporting.pictures.picture import check_picture_path

        check_picture_path(plot)
    with show_progress("plan", "way", quiet=quiet) as progress:
        found = plan(
            stores,
            decoder=decoder or None,
            keep_without_target=keep_without_target,
            progress=progress,
        )
    if plot is not None:
        from seqpack_cli.reporting.pictures.panels import make_plan_panels, make_plan_title
        from seqpack_cli.reporting.pictures.picture import save_picture

        save_picture(plot, make_plan_title(found), make_plan_panels(found))
    print_result(
        found,
        lambda: show_plans(found) if plot is None else [f"{plot}: written"],
        as_json=as_json,
        quiet=quiet and plot is not None,
    )


@grouped_command("pack", groups=(BATCHES, ROWS, WHICH, RUN))
@click.argument("stores", type=PLACE, nargs=-1, required=True, metavar="STORE...")
@output_option("Folder to create for the shards.")
@options_of(PackOptions)
@decoder_option
@run_options
def pack_command(
    stores: tuple[Place, ...], output: Place, decoder: tuple[Place, ...], **options: Any
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
    from seqpack_cli.shards.pack import pack

    quiet = options["quiet"]
    with show_progress("pack", "token", quiet=quiet) as progress:
        manifest, was_complete = pack(
            stores,
            output,
            make_options(PackOptions, options),
            decoder=decoder or None,
            executor=make_options(Executor, options),
            overwrite=options["overwrite"],
            progress=progress,
        )
    if quiet and not options["as_json"]:
        return
    from seqpack_cli.reporting.selection_counts import describe_splits
    from seqpack_cli.reporting.terminal.summaries import summarize_pack
    from seqpack_cli.shards.split_set import open_splits

    if "splits" in manifest:
        manifest = {**manifest, **describe_splits(open_splits(output))}
    print_result(
        {"already_complete": was_complete, **manifest},
        lambda: summarize_pack(output, manifest, was_complete=was_complete),
        as_json=options["as_json"],
    )


@grouped_command("unpack")
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
@write_options
def unpack_command(
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
    from seqpack_cli.shards.unpack import unpack, write_sequences

    if as_json and str(output) == "-":
        raise OptionError(
            "--json conflicts with -o -, which prints the rows", hint="leave out --json"
        )
    how: dict[str, Any] = {"as_text": not as_ids, "file_format": file_format, "side": side}
    with show_progress("unpack", "row", quiet=quiet) as progress:
        opened = open_shards(shards)
        if str(output) == "-":
            write_sequences(opened, write_stdout, progress=progress, **how)
            return
        num_rows = unpack(shards, output, overwrite=overwrite, progress=progress, **how)
    noun = "sequence" if opened.decoder is None or side else "pair"
    print_result(
        {f"num_{noun}s": num_rows, "file": str(output)},
        lambda: [f"{output}: {count(num_rows, noun)}"],
        as_json=as_json,
        quiet=quiet,
    )


@grouped_command("export")
@click.argument("path", type=PLACE)
@output_option("Folder (parquet), prefix (megatron) or file (nanogpt) to write.")
@click.option(
    "--to",
    type=click.Choice(["parquet", "megatron", "nanogpt"]),
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
@write_options
def export_command(
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
    pairs are refused: unpack writes both sides. The tokenizer is not needed. --overwrite replaces
    only a folder of Parquet files that export wrote, an indexed dataset, or uint16 ids that end
    with the same end token, and never an input of the token store.

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
    from seqpack_cli.shards.export import export

    with show_progress("export", "row", quiet=quiet) as progress:
        found = export(path, output, to=to, eos=eos, overwrite=overwrite, progress=progress)
    nouns = [noun for noun in ("document", "sequence", "row", "token") if f"num_{noun}s" in found]
    counts = [count(found[f"num_{noun}s"], noun) for noun in nouns]
    if "num_end_tokens_added" in found:
        counts.append(f"{count(found['num_end_tokens_added'], 'end token')} added")
    line = f"{output}: {', '.join(counts)}, {count(len(found['files']), 'file')}"
    print_result(found, lambda: [line], as_json=as_json, quiet=quiet)
