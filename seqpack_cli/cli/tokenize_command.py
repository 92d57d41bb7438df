"""seqpack tokenize."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    POSITIVE,
    SIZE,
    format_option,
    output_option,
    record_options,
    run_options,
    text_field_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.files.url import Place
from seqpack_cli.runs.workers import Executor


@click.command("tokenize")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option("Folder of the token store.")
@click.option(
    "--tokenizer",
    default="bytes",
    show_default=True,
    help="A tokenizer.json, a folder that holds one, 'bytes', or a hub name.",
)
@format_option
@click.option(
    "--document",
    type=click.Choice(["line", "file", "paragraph"]),
    default="line",
    show_default=True,
    help="What one document of a text file is.",
)
@text_field_option
@click.option(
    "--add-special-tokens/--no-add-special-tokens",
    default=True,
    show_default=True,
    help="Apply the tokenizer's own template.",
)
@click.option("--bos", metavar="TOKEN", help="Token to put first in every document.")
@click.option("--eos", metavar="TOKEN", help="Token to put last in every document.")
@click.option(
    "--allow-special-tokens",
    is_flag=True,
    help="Special tokens spelled in the text become their ids; else text is text.",
)
@click.option("--max-length", type=POSITIVE, help="Tokens of a sequence at most.")
@click.option(
    "--overflow",
    type=click.Choice(["split", "truncate", "drop", "error"]),
    default="split",
    show_default=True,
    help="What happens to a longer document.",
)
@record_options
@click.option(
    "--part-bytes", type=SIZE, default="64MiB", show_default=True, help="Input bytes of a part."
)
@click.option(
    "--encoder",
    type=click.Choice(["auto", "fastokens", "tokenizers"]),
    default="auto",
    show_default=True,
    help="Who encodes; auto is the fastest that agrees with tokenizers.",
)
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
    """Turn text into a token store.

    INPUT is a file, a folder (all .txt .text .md .jsonl .ndjson .parquet .csv .tsv below it), a
    glob, or - for standard input. Each may be compressed: .gz .bz2 .xz .zst.

    \b
    A folder of text, one document a line, one id a byte:
        seqpack tokenize corpus/ -o tokens
    JSON lines with GPT-2's tokenizer, at most 1,024 tokens a sequence:
        seqpack tokenize 'data/*.jsonl' --tokenizer gpt2.json --max-length 1024 -o tokens
    Whole files, with an end token:
        seqpack tokenize books/ --document file --eos '<eos>' -o tokens
    What another program writes:
        zcat dump.gz | seqpack tokenize - --format jsonl --text-field body -o tokens
    """
    from seqpack_cli.reporting.terminal.summaries import summarize_tokenize
    from seqpack_cli.tokens.tokenize_options import TokenizeOptions
    from seqpack_cli.tokens.tokenize_run import tokenize

    with show_progress("tokenize", "B", quiet=quiet) as progress:
        manifest, was_complete = tokenize(
            inputs,
            output,
            TokenizeOptions(**options),
            executor=executor,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"already_complete": was_complete, **manifest})
    elif not quiet:
        print_lines(*summarize_tokenize(output, manifest, was_complete=was_complete))
