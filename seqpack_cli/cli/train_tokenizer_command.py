"""seqpack train-tokenizer."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    OneValueCommand,
    errors_only_option,
    file_options,
    format_option,
    json_option,
    output_option,
    overwrite_option,
    record_options,
    text_field_option,
)
from seqpack_cli.cli.output import print_json, print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import POSITIVE
from seqpack_cli.files.places import Place


@click.command("train-tokenizer", cls=OneValueCommand)
@click.argument("inputs", nargs=-1, metavar="[INPUT...]")
@output_option("File to write, usually named tokenizer.json.", is_file=True)
@click.option(
    "--model",
    type=click.Choice(["bpe", "wordpiece", "unigram", "wordlevel"]),
    default="bpe",
    show_default=True,
    help="Type of model to train, as in the tokenizers library. bpe is byte-level BPE, which can "
    "encode any text; the others have an unknown token.",
)
@click.option(
    "--vocab-size",
    type=POSITIVE,
    default=32000,
    show_default=True,
    help="Maximum size of the vocabulary, special tokens included.",
)
@click.option(
    "--special-token",
    "special_tokens",
    multiple=True,
    metavar="TOKEN",
    help="Add a special token; may be given several times. <pad>, <bos>, <eos> and, except for "
    "bpe, <unk> are always added.",
)
@click.option(
    "--min-frequency",
    type=POSITIVE,
    default=2,
    show_default=True,
    help="Ignore pairs (bpe, wordpiece) or words (wordlevel) that occur fewer than N times; "
    "unigram does not use it.",
)
@file_options
@format_option
@text_field_option
@record_options
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
    from seqpack_cli.tokens.train_tokenizer import TrainTokenizerOptions, train_tokenizer

    with show_progress("train", "B", quiet=quiet) as progress:
        vocab_size = train_tokenizer(
            inputs,
            output,
            TrainTokenizerOptions(**options),
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json({"vocab_size": vocab_size, "file": str(output)})
    elif not quiet:
        print_lines(f"{output}: {vocab_size:,} tokens")
