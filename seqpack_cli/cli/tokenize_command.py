"""seqpack tokenize."""

from __future__ import annotations

from collections.abc import Mapping
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
from seqpack_cli.runs.workers import Executor
from seqpack_cli.tokens.options import TARGETS, TOKENS, TokenizeOptions


@click.command("tokenize", cls=GroupedCommand, groups=(TOKENS, DOCUMENTS, TARGETS, INPUT, RUN))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@options_of(TokenizeOptions)
@run_options
def command(
    inputs: tuple[str, ...],
    output: Place,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
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
    check_inputs(inputs, options)
    executor = pop_executor(options)
    _start_encoder(inputs, executor, options)
    from seqpack_cli.tokens.tokenize_run import tokenize

    with show_progress("tokenize", "B", quiet=quiet) as progress:
        manifest, was_complete = tokenize(
            inputs,
            output,
            make_options(TokenizeOptions, options),
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        _print_summary(output, manifest, was_complete=was_complete)


def _start_encoder(inputs: tuple[str, ...], executor: Executor, options: Mapping[str, Any]) -> None:
    """Load the encoder while the modules of the run are imported."""
    from seqpack_cli.tokens.encoders.early_start import start_early

    takes_special = options["allow_special_tokens"] or options["messages_field"] is not None
    start_early(
        inputs,
        options["tokenizer"],
        options["encoder"],
        allow_special_tokens=takes_special,
        executor=executor,
    )


def _print_summary(output: Place, manifest: dict[str, Any], *, was_complete: bool) -> None:
    from seqpack_cli.reporting.terminal.summaries import summarize_tokenize

    print_lines(*summarize_tokenize(output, manifest, was_complete=was_complete))
