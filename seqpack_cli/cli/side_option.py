"""The option --side of commands that read shards of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from seqpack_cli.batching.options import SIDES

Command = TypeVar("Command", bound=Callable[..., None])


def side_option(what: str) -> Callable[[Command], Command]:
    """Return the option that chooses one side of pairs.

    Args:
        what: its help, a sentence.
    """
    return click.option("--side", type=click.Choice(SIDES), help=f"{what}  [default: both sides]")
