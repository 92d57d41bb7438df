"""seqpack tokenize, import and train-tokenizer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from seqpack_cli.cli.options import (
    grouped_command,
    options_of,
    output_option,
    run_options,
    write_options,
)
from seqpack_cli.cli.output import print_result
from seqpack_cli.cli.process import show_progress
from seqpack_cli.corpus.options import DOCUMENTS, INPUT
from seqpack_cli.runs.options import RUN, make_options
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.options import (
    IDS,
    TARGETS,
    TOKENS,
    ImportOptions,
    TokenizeOptions,
    TrainTokenizerOptions,
)

if TYPE_CHECKING:
    from seqpack_cli.files.places import Place  # not for --help


@grouped_command("tokenize", groups=(TOKENS, DOCUMENTS, TARGETS, INPUT, RUN))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@options_of(TokenizeOptions)
@run_options
def tokenize_command(inputs: tuple[str, ...], output: Place, **options: Any) -> None:
    """Tokenize text files into a token store, the folder that `seqpack pack` reads.

    INPUT is a file, a folder (all .txt .text .md .jsonl .ndjson .parquet .arrow .arrows .feather
    .ipc .csv .tsv files below it, in the order of their paths), a glob pattern, a URL (s3:// or
    gs://), or - for standard input. It may be omitted with --files-from. A .json file must be named
    or match a glob. Files may be compressed (.gz .bz2 .xz .zst). A record is one line, file or
    paragraph of text, a JSON object, or a table row; its text is a document, and each document
    becomes one sequence, or several if it is cut. Running the same command again continues an
    interrupted run; with other options or a changed input it needs --overwrite.

    \b
    A folder of text files, one document per line, one id per byte:
        seqpack tokenize corpus/ -o tokens
    JSON lines with GPT-2's tokenizer, at most 1,024 tokens per sequence:
        seqpack tokenize 'data/*.jsonl' --tokenizer gpt2.json --max-length 1024 -o tokens
    One document per file, with an end token:
        seqpack tokenize books/ --document file --eos '<eos>' -o tokens
    Prompts and their answers, of which only the answers count in the loss:
        seqpack tokenize qa.jsonl --prompt-field q --completion-field a --eos '<eos>' -o tokens
    Conversations, with the chat template of a model's folder or of a name on the Hub:
        seqpack tokenize chats.jsonl --messages-field messages --tokenizer model/ -o tokens
    The output of another program:
        zcat dump.gz | seqpack tokenize - --format jsonl --text-field body -o tokens
    """
    _check_inputs(inputs, options["files_from"])
    from seqpack_cli.tokens.encoders import start_early

    executor = make_options(Executor, options)
    if executor.num_workers is not None:
        os.environ.setdefault("RAYON_NUM_THREADS", str(executor.num_workers))  # of tokenizers
    start_early(  # loads the encoder while the modules of the run are imported
        inputs,
        options["tokenizer"],
        options["encoder"],
        allow_special_tokens=(
            options["allow_special_tokens"] or options["messages_field"] is not None
        ),
        executor=executor,
    )
    from seqpack_cli.tokens.tokenize_run import tokenize

    _make_store("tokenize", tokenize, TokenizeOptions, inputs, output, options)


@grouped_command("import", groups=(IDS, DOCUMENTS, INPUT, RUN))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@options_of(ImportOptions)
@run_options
def import_command(inputs: tuple[str, ...], output: Place, **options: Any) -> None:
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
    _check_inputs(inputs, options["files_from"])
    from seqpack_cli.tokens.import_ids import import_store

    _make_store("import", import_store, ImportOptions, inputs, output, options)


@grouped_command("train-tokenizer", groups=(TOKENS, DOCUMENTS, INPUT))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("File to write, usually named tokenizer.json.", is_file=True)
@options_of(TrainTokenizerOptions)
@write_options
def train_tokenizer_command(inputs: tuple[str, ...], output: Place, **options: Any) -> None:
    """Train a tokenizer on text files and write it as a tokenizer.json of the tokenizers library.

    INPUT is what `seqpack tokenize` takes: files, folders, glob patterns, URLs, or -; it may be
    omitted with --files-from. In text files, each line is a document.

    \b
    Byte-level BPE with 16,000 tokens, and how to use it:
        seqpack train-tokenizer corpus/ --vocab-size 16000 -o tokenizer.json
        seqpack tokenize corpus/ --tokenizer tokenizer.json --eos '<eos>' -o tokens
    WordPiece, with one more special token:
        seqpack train-tokenizer wiki.jsonl.zst --model wordpiece --special-token '<mask>' -o wp.json
    """
    from seqpack_cli.tokens.train_tokenizer import train_tokenizer

    _check_inputs(inputs, options["files_from"])
    as_json, quiet = options["as_json"], options["quiet"]
    with show_progress("train", "B", quiet=quiet) as progress:
        vocab_size = train_tokenizer(
            inputs,
            output,
            make_options(TrainTokenizerOptions, options),
            overwrite=options["overwrite"],
            progress=progress,
        )
    found = {"vocab_size": vocab_size, "file": str(output)}
    print_result(found, lambda: [f"{output}: {vocab_size:,} tokens"], as_json=as_json, quiet=quiet)


def _make_store(
    name: str,
    run: Callable[..., tuple[dict[str, Any], bool]],
    kind: type,
    inputs: tuple[str, ...],
    output: Place,
    options: dict[str, Any],
) -> None:
    """Run what makes a token store, and print what it holds."""
    quiet = options["quiet"]
    with show_progress(name, "B", quiet=quiet) as progress:
        manifest, was_complete = run(
            inputs,
            output,
            make_options(kind, options),
            executor=make_options(Executor, options),
            overwrite=options["overwrite"],
            progress=progress,
        )
    from seqpack_cli.reporting.terminal.summaries import summarize_tokenize

    print_result(
        {"already_complete": was_complete, **manifest},
        lambda: summarize_tokenize(output, manifest, was_complete=was_complete),
        as_json=options["as_json"],
        quiet=quiet,
    )


def _check_inputs(inputs: tuple[str, ...], files_from: object) -> None:
    """Refuse a command line without INPUT and --files-from."""
    if files_from is None and not inputs:
        context = click.get_current_context()
        message = "Pass a file or a folder, or --files-from LIST"
        raise click.MissingParameter(
            message, context, context.command.params[0], param_hint="'INPUT...'"
        )
