"""seqpack train-tokenizer."""

from __future__ import annotations

from pathlib import Path

import click

from seqpack_cli.cli.options import (
    POSITIVE,
    check_new_file,
    output_option,
    overwrite_option,
    quiet_option,
)
from seqpack_cli.cli.progress import show_progress


@click.command("train-tokenizer")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option("The tokenizer.json to write.")
@click.option(
    "--vocab-size",
    type=click.IntRange(min=259),
    default=32000,
    show_default=True,
    help="Tokens at most: 256 bytes, 3 special tokens, and merges.",
)
@click.option("--text-field", default="text", show_default=True, help="JSON field; a.b is nested.")
@click.option("--min-frequency", type=POSITIVE, default=2, show_default=True, help="Of a merge.")
@overwrite_option
@quiet_option
def command(
    inputs: tuple[str, ...],
    output: Path,
    vocab_size: int,
    text_field: str,
    min_frequency: int,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Train a byte-level BPE tokenizer on text.

    Special tokens are <pad>, <bos> and <eos>; no text is unknown to it.

    \b
        seqpack train-tokenizer corpus/ --vocab-size 16000 -o tokenizer.json
        seqpack tokenize corpus/ --tokenizer tokenizer.json --eos '<eos>' -o tokens
    """
    from seqpack_cli.corpus.documents import DocumentOptions
    from seqpack_cli.storage import publish
    from seqpack_cli.tokens.train_tokenizer import train_tokenizer

    check_new_file(output, overwrite=overwrite)
    with show_progress("train", "B", quiet=quiet) as progress:
        tokenizer_json, num_tokens = train_tokenizer(
            inputs,
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            documents=DocumentOptions(text_field=text_field),
            progress=progress,
        )
    with publish(output) as file:
        file.write(tokenizer_json)
    if not quiet:
        click.echo(f"{output}: {num_tokens:,} tokens")
