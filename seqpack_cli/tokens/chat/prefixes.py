"""Find what the assistant writes by rendering the beginnings of a conversation.

An assistant message begins where the messages before it end, with the generation prompt behind
them, and ends where it is the last one. That holds only if both are beginnings of the whole text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from seqpack_cli.corpus.fields import BadRecordError
from seqpack_cli.errors import quote
from seqpack_cli.tokens.target_text import Span

ASSISTANT = "assistant"
NUM_SHOWN = 24  # characters of a difference, so that both sides fit on a line
Render = Callable[[list[dict[str, Any]], bool], str]  # the bool: with the generation prompt


def find_turns(
    messages: list[dict[str, Any]], text: str, render: Render, *, target_turns: str
) -> list[Span]:
    """Return the place of each assistant message in the text of a conversation, or of the last.

    Args:
        render: returns the text of some messages.

    Raises:
        BadRecordError: the template renders a beginning of the conversation differently.
    """
    turns = [at for at, message in enumerate(messages) if message["role"] == ASSISTANT]
    hint = "pass a --chat-template with {% generation %} blocks"
    if target_turns == "last":
        turns = turns[-1:]
    elif len(turns) > 1:
        hint = f"pass --target-turns last, or {hint.removeprefix('pass ')}"

    def measure(at: int, num_messages: int, has_prompt: bool) -> int:
        try:
            beginning = render(messages[:num_messages], has_prompt)
        except BadRecordError as error:
            what = f"message {at + 1:,}: without what follows, {error.reason}"
            raise BadRecordError(what, hint) from error
        if not text.startswith(beginning):
            raise BadRecordError(f"message {at + 1:,}: {_compare(beginning, text)}", hint)
        return len(beginning)

    spans = []
    for at in turns:
        start = measure(at, at, True)
        end = len(text) if at + 1 == len(messages) else measure(at, at + 1, False)
        spans.append((start, max(start, end)))
    return spans


def _compare(beginning: str, text: str) -> str:
    place = len(os.path.commonprefix([beginning, text]))  # noqa: RUF071 - of characters
    first = max(0, place - NUM_SHOWN // 2)
    found, expected = (
        quote(each[first : first + NUM_SHOWN]) if place < len(each) else "its end"
        for each in (beginning, text)
    )
    return (
        f"at character {place:,}, the chat template writes {expected}, but without the messages "
        f"that follow {found}, expected the same text"
    )
