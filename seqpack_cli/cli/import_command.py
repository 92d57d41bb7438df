"""seqpack import."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    GroupedCommand,
    check_inputs,
    options_of,
    output_option,
    pop_executor,
    run_options,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.corpus.options import DOCUMENTS, INPUT
from seqpack_cli.files.places import Place
from seqpack_cli.runs.options import RUN, make_options
from seqpack_cli.tokens.options import IDS, ImportOptions


@click.command("import", cls=GroupedCommand, groups=(IDS, DOCUMENTS, INPUT, RUN))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@options_of(ImportOptions)
@run_options
def command(
    inputs: tuple[str, ...],
    output: Place,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Import ids that another tool made into a token store, as `tokenize` writes it.

    INPUT is an indexed dataset of Megatron-LM (its .bin, its .idx, or what comes before
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
    from seqpack_cli.tokens.import_ids import import_store

    check_inputs(inputs, options)
    executor = pop_executor(options)
    with show_progress("import", "B", quiet=quiet) as progress:
        manifest, was_complete = import_store(
            inputs,
            output,
            make_options(ImportOptions, options),
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        print_lines(*summarize_tokenize(output, manifest, was_complete=was_complete))
