"""seqpack import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    file_options,
    max_document_option,
    output_option,
    part_bytes_option,
    run_options,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import POSITIVE
from seqpack_cli.files.places import Place
from seqpack_cli.runs.workers import Executor

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _option_beside_ids(name: str, help_text: str) -> Decorator:
    """Make the option that names a field which stands beside the ids of records."""
    return click.option(
        f"--{name.replace('_', '-')}-field",
        metavar="FIELD",
        help=f"{help_text}  [default: {name}, where the first 1,000 records have it]",
    )


@click.command("import", cls=OneValueCommand)
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@click.option(
    "--tokenizer",
    help="Tokenizer that made the ids: path of a tokenizer.json or of a folder that contains one, "
    "else the name of a model on the Hugging Face Hub, or 'bytes'. It is kept in the store.",
)
@click.option(
    "--vocab-size",
    type=POSITIVE,
    metavar="N",
    help="Size of the vocabulary, instead of --tokenizer: ids are from 0 to N - 1. Choose the rows "
    "of the model's embedding, or the largest id + 1. The store cannot be decoded then.",
)
@file_options
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["auto", "megatron", "flat", "jsonl", "json", "parquet", "arrow"]),
    default="auto",
    show_default=True,
    help="Format of the input, for all files. auto: by the name of each file. megatron is a .bin "
    "with an .idx beside it, flat a file of ids alone (.bin, .npy).",
)
@click.option(
    "--ids-field",
    default="input_ids",
    show_default=True,
    metavar="FIELD",
    help="Field or column of a record with its ids.",
)
@_option_beside_ids(
    "labels", "Field with the label of each token: its id if it counts in the loss, else -100."
)
@_option_beside_ids(
    "attention_mask",
    "Field with a 1 for each token and a 0 for padding, which is left out.",
)
@_option_beside_ids("loss_mask", "Field with a 1 for each token that counts in the loss, else 0.")
@click.option(
    "--ignore-field",
    "ignore_fields",
    multiple=True,
    metavar="FIELD",
    help="Leave a field unread: labels, attention_mask, loss_mask; assistant_masks or "
    "completion_mask, without which each token is a target; seq_lengths or seq_start_id, which "
    "makes a record one sequence; or overlap, which keeps repeated tokens. May be given several "
    "times.",
)
@click.option(
    "--document-field",
    metavar="FIELD",
    help="Field with a whole number; records that follow each other with the same number are "
    "sequences of one document.  [default: each record is a document; Megatron says it itself]",
)
@click.option(
    "--dtype",
    type=click.Choice(["uint8", "uint16", "int32", "uint32", "int64"]),
    help="Type of the ids in files of ids alone (flat), little-endian; they do not say it "
    "themselves.",
)
@click.option(
    "--eos",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Id at the end of each document, by which documents are found in files of ids alone "
    "(flat), which need one. It stays with its document. With --vocab-size it is the end token of "
    "the store, whatever the format is.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="FIELD[:TYPE]",
    help="Field of each record to keep as a column beside the ids; may be given several times. "
    "TYPE is int, float, class or text. Without TYPE the first 1,000 records decide.",
)
@click.option(
    "--on-bad-record",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="What to do with a document that cannot be read, or has an id outside the vocabulary or a "
    "label that is neither its id nor -100: stop with an error, or skip it. rejects.jsonl in the "
    "store lists what was skipped.",
)
@max_document_option
@part_bytes_option
@run_options
def command(
    inputs: tuple[str, ...],
    output: Place,
    executor: Executor,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Import ids that another tool made into a token store, as `tokenize` writes it.

    INPUT is an indexed dataset of Megatron-LM or fairseq (its .bin, its .idx, or what comes before
    both), a file of records with a field of ids (.jsonl .json .parquet .arrow), a dataset that
    Hugging Face's datasets saved (its folder), a file of ids alone (.bin .npy), a folder or glob
    of these, or a URL. Ids are stored as they are: no token is added, padding is left out where a
    mask says so. A document with an id outside the vocabulary is an error. Running the same command
    again continues an interrupted run.

    \b
    Data of Megatron-LM, whose tokenizer is known:
        seqpack import data/corpus_text_document --tokenizer gpt2.json -o tokens
    A saved Hugging Face dataset with input_ids, and labels if it has them:
        seqpack import dataset/train --tokenizer model/ -o tokens
    nanoGPT's train.bin, with GPT-2's 50,257 ids and its end token:
        seqpack import train.bin --dtype uint16 --eos 50256 --vocab-size 50257 -o tokens
    """
    from seqpack_cli.reporting.terminal.summaries import summarize_tokenize
    from seqpack_cli.tokens.imports.import_options import ImportOptions
    from seqpack_cli.tokens.imports.import_run import import_store

    with show_progress("import", "B", quiet=quiet) as progress:
        manifest, was_complete = import_store(
            inputs,
            output,
            ImportOptions(**options),
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        print_lines(*summarize_tokenize(output, manifest, was_complete=was_complete))
