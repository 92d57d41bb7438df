"""seqpack tokenize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    file_options,
    format_option,
    output_option,
    part_bytes_option,
    record_options,
    run_options,
    text_field_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.target_options import target_options
from seqpack_cli.cli.values import POSITIVE
from seqpack_cli.files.places import Place
from seqpack_cli.runs.workers import Executor


@click.command("tokenize", cls=OneValueCommand)
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("Folder to create for the token store.")
@click.option(
    "--tokenizer",
    default="bytes",
    show_default=True,
    help="Path of a tokenizer.json or of a folder that contains one, else the name of a model on "
    "the Hugging Face Hub that has one, or 'bytes': one id per UTF-8 byte, plus <pad>, <bos> and "
    "<eos>, of which the last two are added only with --bos and --eos.",
)
@file_options
@format_option
@click.option(
    "--document",
    type=click.Choice(["line", "file", "paragraph"]),
    default="line",
    show_default=True,
    help="What becomes one document of a text file: each line, each whole file, or each paragraph "
    "(separated by blank lines). Empty lines and files are counted and give no sequence.",
)
@text_field_option
@target_options
@click.option(
    "--keep",
    multiple=True,
    metavar="FIELD[:TYPE]",
    help="Field of each record to keep as a column beside the ids, for training and --where; may "
    "be given several times. TYPE is int, float, class (strings, numbers or booleans, numbered), "
    "text, or tags (one class per word, or [start, end, label] spans). Without TYPE the first "
    "1,000 records decide. label:class=no,yes fixes the classes and their order. --document file "
    "has the field folder.",
)
@click.option(
    "--tag-subtokens",
    type=click.Choice(["first", "all"]),
    help="Which tokens of a word have its tag: the first one, the others are ignored in the loss "
    "(-100), or all.  [default: first]",
)
@click.option(
    "--add-special-tokens/--no-add-special-tokens",
    default=True,
    show_default=True,
    help="Whether to add the special tokens that the tokenizer's own template adds, such as [CLS] "
    "and [SEP] of BERT. 'bytes' has no template.",
)
@click.option(
    "--bos",
    metavar="TOKEN",
    help="Token of the vocabulary to add at the start of each document, unless the template "
    "already puts it there.  [default: none]",
)
@click.option(
    "--eos",
    metavar="TOKEN",
    help="Token of the vocabulary to add at the end of each document, unless the template already "
    "puts it there.  [default: none]",
)
@click.option(
    "--allow-special-tokens",
    is_flag=True,
    help="Encode special tokens that are spelled out in the text, such as <eos>, as their ids. By "
    "default they are encoded as ordinary text.",
)
@click.option(
    "--max-length",
    type=POSITIVE,
    help="Maximum length of a sequence in tokens, added special tokens included. Truncation saved "
    "in tokenizer.json is ignored.  [default: no limit]",
)
@click.option(
    "--overflow",
    type=click.Choice(["split", "truncate", "drop", "error"]),
    default="split",
    show_default=True,
    help="What to do with a document longer than --max-length: split it into several sequences "
    "(added special tokens only at the start of the first and the end of the last), keep only its "
    "first tokens (and the added special tokens), drop it (counted), or stop with an error.",
)
@click.option(
    "--overlap",
    type=POSITIVE,
    metavar="K",
    help="Begin each later sequence of a document that is split with the last K tokens of the one "
    "before, as context that does not count in the loss. With K = 1 a model learns the first token "
    "of each piece too.  [default: none]",
)
@record_options
@part_bytes_option
@click.option(
    "--encoder",
    type=click.Choice(["auto", "fastokens", "tokenizers"]),
    default="auto",
    show_default=True,
    help="Library that tokenizes. auto: fastokens, a faster one, if it is installed and gives the "
    "same ids as tokenizers in a check, else tokenizers. The ids are the same either way.",
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
    _start_encoder(inputs, executor, options)
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
        _print_summary(output, manifest, was_complete=was_complete)


def _start_encoder(inputs: tuple[str, ...], executor: Executor, options: Mapping[str, Any]) -> None:
    """Load the encoder while the modules of the run are imported."""
    from seqpack_cli.tokens.encoders.early_start import start_early

    takes_special = options["allow_special_tokens"] or options["targets"].messages_field is not None
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
