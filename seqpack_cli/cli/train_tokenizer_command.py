"""seqpack train-tokenizer."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    GroupedCommand,
    check_inputs,
    errors_only_option,
    json_option,
    options_of,
    output_option,
    overwrite_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.corpus.options import DOCUMENTS, INPUT
from seqpack_cli.files.places import Place
from seqpack_cli.runs.options import make_options
from seqpack_cli.tokens.options import TOKENS, TrainTokenizerOptions


@click.command("train-tokenizer", cls=GroupedCommand, groups=(TOKENS, DOCUMENTS, INPUT))
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("File to write, usually named tokenizer.json.", is_file=True)
@options_of(TrainTokenizerOptions)
@overwrite_option
@json_option
@errors_only_option
def command(
    inputs: tuple[str, ...],
    output: Place,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
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

    check_inputs(inputs, options)
    with show_progress("train", "B", quiet=quiet) as progress:
        vocab_size = train_tokenizer(
            inputs,
            output,
            make_options(TrainTokenizerOptions, options),
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"vocab_size": vocab_size, "file": str(output)})
    elif not quiet:
        print_lines(f"{output}: {vocab_size:,} tokens")
