"""The options of tokenize that say which tokens count in the loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from seqpack_cli.cli.values import PLACE

Command = Callable[..., None]

OPTIONS = (
    click.option(
        "--prompt-field",
        metavar="FIELD",
        help="Field of a prompt, which its completion follows in the text (with "
        "--completion-field). Its tokens do not count in the loss.",
    ),
    click.option(
        "--completion-field",
        metavar="FIELD",
        help="Field of a completion: its tokens count in the loss, and the end token.",
    ),
    click.option(
        "--messages-field",
        metavar="FIELD",
        help="Field with the messages of a conversation, a list of objects with role and content. "
        "The chat template turns them into text; only what the assistant says counts in the loss.",
    ),
    click.option(
        "--tools-field",
        metavar="FIELD",
        help="Field with the tools of a conversation, for the chat template; records may lack it.",
    ),
    click.option(
        "--chat-template",
        type=PLACE,
        metavar="FILE",
        help="Jinja template for --messages-field.  [default: that of the tokenizer's folder: "
        "chat_template.jinja, or chat_template in tokenizer_config.json]",
    ),
    click.option(
        "--target-turns",
        type=click.Choice(["all", "last"]),
        default="all",
        show_default=True,
        help="Which messages of the assistant count in the loss.",
    ),
    click.option(
        "--template-date",
        metavar="YYYY-MM-DD",
        help="Day that the chat template may write into a text. Without it, a template that asks "
        "for the day is an error, since the store would depend on when it was made.",
    ),
)


def target_options(function: Command) -> Command:
    """Add the options of targets, which arrive as one `TargetOptions`."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        from seqpack_cli.tokens.target_options import TargetOptions

        names = list(TargetOptions.__dataclass_fields__)
        targets = TargetOptions(**{name: options.pop(name) for name in names})
        function(targets=targets, **options)

    wrapped: Command = command
    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped
