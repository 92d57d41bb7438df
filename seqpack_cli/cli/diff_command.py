"""seqpack diff."""

from __future__ import annotations

import click

from seqpack_cli.cli.options import GroupedCommand, json_option, quiet_option
from seqpack_cli.cli.output import print_answer
from seqpack_cli.cli.progress import show_progress
from seqpack_cli.cli.values import PLACE
from seqpack_cli.files.places import Place


@click.command("diff", cls=GroupedCommand)
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@json_option
@quiet_option
def command(a: Place, b: Place, as_json: bool, quiet: bool) -> None:
    """Show what differs between two token stores, or between two folders of shards.

    Compares options, counts, input files, sequences and batches, and counts the documents that both
    contain: those with equal texts, also from other stores. The exit code is 0 also if they differ;
    the field `identical` of --json is true if nothing differs. Of shards of pairs both sides are
    compared, and which sequences belong together; with single sequences, the encoder's side is.

    \b
    Two stores, made with different options or from different input:
        seqpack diff tokens-old tokens
    Two folders of shards:
        seqpack diff shards-old shards
    Documents of the test set that are in the training set too:
        seqpack diff splits/train splits/test
    """
    from seqpack_cli.reporting.differences import diff
    from seqpack_cli.reporting.terminal.difference_lines import show_differences

    with show_progress("diff", "sequence", quiet=quiet) as progress:
        found = diff(a, b, progress=progress)
    print_answer(found, show_differences, as_json=as_json, quiet=quiet)
