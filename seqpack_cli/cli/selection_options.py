"""The options of `pack` that say which sequences are packed, how often, and with which columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from seqpack_cli.cli.values import NATURAL, POSITIVE

Command = Callable[..., None]
keep_without_target_option = click.option(
    "--keep-without-target",
    is_flag=True,
    help="Keep sequences of which no token is a target (see --completion-field, --messages-field "
    "and --overlap of tokenize). By default pack drops and counts them, after --where, since they "
    "add nothing to the loss, and plan leaves out the same ones.",
)
OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--split",
        metavar="NAME=SHARE,...",
        help="Write a shard set for each split into its own folder below the output, such as "
        "train=0.98,validation=0.01,test=0.01; the shares add up to 1, and one may be rest. The "
        "hash of a document's text decides its split, so it stays there when documents are added, "
        "and equal documents are in the same split.  [default: one shard set]",
    ),
    click.option(
        "--split-seed",
        type=NATURAL,
        default=0,
        show_default=True,
        help="Random seed for --split.",
    ),
    click.option(
        "--split-by",
        metavar="COLUMN",
        help="Split by the values of a column (see tokenize --keep), not by documents: sequences "
        "with the same value are in the same split. With --split NAME,NAME (no shares), the "
        "values are the names of the splits; any other value is an error.  [default: by documents]",
    ),
    click.option(
        "--drop-shorter",
        type=POSITIVE,
        help="Drop sequences of fewer than N tokens (counted), after --split and before --where.  "
        "[default: none]",
    ),
    click.option(
        "--drop-longer",
        type=POSITIVE,
        help="Drop sequences of more than N tokens (counted), after --split and before --where.  "
        "[default: none]",
    ),
    click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        help="Pack only sequences for which CONDITION holds, such as 'lang = de', 'label != 3', "
        "'@length >= 8' or '@source = corpus/a*'; other sequences are counted as dropped. A name "
        "is a column of the store (see tokenize --keep), @length (number of tokens) or @source "
        "(path of the input file as recorded in the manifest; * matches any characters). "
        "Operators: = != < <= > >=; for text, classes and @source only = and !=. Put quotes "
        "around a name with = ! < > in it, and around a value that begins or ends with a space. "
        "Repeat the option for several conditions: all must hold.  [default: all sequences]",
    ),
    keep_without_target_option,
    click.option(
        "--passes",
        metavar="STORE=N,...",
        help="How often each sequence of a store is packed, such as A=2,B=0.5; a store is named "
        "by its folder, or by its position from 1. A fraction takes the documents that their hash "
        "and --seed choose: 2.5 takes all documents twice, and half of them a third time. Visits "
        "of one sequence are never in the same batch. With --split, this applies to the first "
        "split only. Not with --share.  [default: 1 for each store]",
    ),
    click.option(
        "--share",
        metavar="STORE=SHARE,...",
        help="Choose the passes so that each store has its share of all packed tokens, such as "
        "A=0.7,B=rest. All stores must be named; the shares add up to 1, and one may be rest. "
        "Tokens are counted after --split, --drop-shorter, --drop-longer and --where. With "
        "--split, this applies to the first split only. Not with --passes.  [default: none]",
    ),
    click.option(
        "--max-passes",
        metavar="N",
        help="Maximum number of passes of a store with --share; at least one store has exactly "
        "this number.  [default: 1]",
    ),
    click.option(
        "--store-column",
        metavar="NAME",
        help="Add a column of classes with the store of each sequence, for a loss per store.",
    ),
    click.option(
        "--drop-column",
        multiple=True,
        metavar="NAME",
        help="Leave out a column of the stores; columns that not all stores have must be left "
        "out. Repeat the option for several.",
    ),
)


def selection_options(command: Command) -> Command:
    """Add the options to a command, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
