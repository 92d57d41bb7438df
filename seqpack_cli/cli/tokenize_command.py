"""seqpack tokenize."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    format_option,
    output_option,
    record_options,
    run_options,
    text_field_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import POSITIVE, SIZE
from seqpack_cli.files.url import Place
from seqpack_cli.runs.workers import Executor


@click.command("tokenize", cls=OneValueCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option("Folder to create for the token store.")
@click.option(
    "--tokenizer",
    default="bytes",
    show_default=True,
    help="Path of a tokenizer.json or of a folder that contains one, the name of a model on the "
    "Hugging Face Hub, or 'bytes': one id per UTF-8 byte, plus <pad>, <bos> and <eos>.",
)
@format_option
@click.option(
    "--document",
    type=click.Choice(["line", "file", "paragraph"]),
    default="line",
    show_default=True,
    help="In text files, what becomes one document: each line, each whole file, or each paragraph "
    "(separated by blank lines).",
)
@text_field_option
@click.option(
    "--add-special-tokens/--no-add-special-tokens",
    default=True,
    show_default=True,
    help="Whether to add the special tokens that the tokenizer itself defines, such as [CLS] and "
    "[SEP] of BERT.",
)
@click.option("--bos", metavar="TOKEN", help="Special token to add at the start of each document.")
@click.option("--eos", metavar="TOKEN", help="Special token to add at the end of each document.")
@click.option(
    "--allow-special-tokens",
    is_flag=True,
    help="Encode special tokens that are spelled out in the text, such as <eos>, as their ids. By "
    "default they are encoded as ordinary text.",
)
@click.option(
    "--max-length",
    type=POSITIVE,
    help="Maximum length of a sequence in tokens, added special tokens included.  [default: no "
    "limit]",
)
@click.option(
    "--overflow",
    type=click.Choice(["split", "truncate", "drop", "error"]),
    default="split",
    show_default=True,
    help="What to do with a document longer than --max-length: split it into several sequences, "
    "keep its first tokens only, drop it, or stop with an error.",
)
@record_options
@click.option(
    "--part-bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="Amount of input for one part file of the store. Workers take one part at a time, and an "
    "interrupted run continues after the last finished part.",
)
@click.option(
    "--encoder",
    type=click.Choice(["auto", "fastokens", "tokenizers"]),
    default="auto",
    show_default=True,
    help="Tokenizer implementation. auto: fastokens if it gives the same ids as tokenizers, else "
    "tokenizers.",
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
    """Tokenize text files into a token store, the folder that `seqpack pack` reads.

    INPUT is a file, a folder (all .txt .text .md .jsonl .ndjson .parquet .csv .tsv files below it),
    a glob pattern, a URL such as s3://bucket/corpus, or - for standard input. Files may be
    compressed (.gz .bz2 .xz .zst). Running the same command again continues an interrupted run.

    \b
    A folder of text files, one document per line, one id per byte:
        seqpack tokenize corpus/ -o tokens
    JSON lines with GPT-2's tokenizer, at most 1,024 tokens per sequence:
        seqpack tokenize 'data/*.jsonl' --tokenizer gpt2.json --max-length 1024 -o tokens
    One document per file, with an end token:
        seqpack tokenize books/ --document file --eos '<eos>' -o tokens
    The output of another program:
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
