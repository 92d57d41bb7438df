"""seqpack train-tokenizer."""

from __future__ import annotations

from typing import Any

import click

from seqpack_cli.cli.options import (
    POSITIVE,
    format_option,
    output_option,
    overwrite_option,
    quiet_option,
    record_options,
    text_field_option,
)
from seqpack_cli.cli.output import print_lines
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.files.url import Place


@click.command("train-tokenizer")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option("The tokenizer.json to write.", is_file=True)
@click.option(
    "--model",
    type=click.Choice(["bpe", "wordpiece", "unigram", "wordlevel"]),
    default="bpe",
    show_default=True,
    help="bpe is byte-level: no text is unknown to it.",
)
@click.option(
    "--vocab-size", type=POSITIVE, default=32000, show_default=True, help="Tokens at most, in all."
)
@click.option(
    "--special-token",
    "special_tokens",
    multiple=True,
    metavar="TOKEN",
    help="One more special token; may be given many times.",
)
@click.option(
    "--min-frequency",
    type=POSITIVE,
    default=2,
    show_default=True,
    help="Of a merge or word; unigram has none.",
)
@format_option
@text_field_option
@record_options
@overwrite_option
@quiet_option
def command(
    inputs: tuple[str, ...], output: Place, overwrite: bool, quiet: bool, **options: Any
) -> None:
    """Train a tokenizer on text, as tokenize reads it.

    Special tokens are <pad>, <bos>, <eos>, for all models but bpe <unk>, and those you name.

    \b
        seqpack train-tokenizer corpus/ --vocab-size 16000 -o tokenizer.json
        seqpack tokenize corpus/ --tokenizer tokenizer.json --eos '<eos>' -o tokens
        seqpack train-tokenizer wiki.jsonl.zst --model wordpiece --special-token '<mask>' -o wp.json
    """
    from seqpack_cli.tokens.train_tokenizer import TrainTokenizerOptions, train_tokenizer

    with show_progress("train", "B", quiet=quiet) as progress:
        num_tokens = train_tokenizer(
            inputs,
            output,
            TrainTokenizerOptions(**options),
            overwrite=overwrite,
            progress=progress,
        )
    if not quiet:
        print_lines(f"{output}: {num_tokens:,} tokens")
