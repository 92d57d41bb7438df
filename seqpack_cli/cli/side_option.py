"""The option --side of commands that read shards of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., None])


def side_option(what: str) -> Callable[[Command], Command]:
    """Return the option that chooses one side of pairs.

    Args:
        what: its help, a sentence.
    """
    sides = click.Choice(["encoder", "decoder"])
    return click.option("--side", type=sides, help=f"{what}  [default: both sides]")
