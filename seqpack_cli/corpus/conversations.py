"""Recognize conversations, for the hints of errors: --messages-field reads them, nothing else does.

A conversation is a list of messages: objects with a role, or, as ShareGPT calls it, with `from`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

MESSAGES_FIELD = "--messages-field"
ROLE_NAMES = frozenset({"role", "from"})
PAIR_OPTIONS = ("--prompt-field", "--completion-field")
JOIN_HINT = (
    "join the messages of prompt and completion to one list, in a field of its own, and pass "
    f"{MESSAGES_FIELD}"
)


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and not ROLE_NAMES.isdisjoint(each) for each in value)
    )


def find_conversation(found: Mapping[str, Any]) -> str | None:
    """Return the first field of a record that is a conversation."""
    names = (name for name, value in found.items() if is_conversation(value))
    return next(filter(str.isprintable, names), None)


def propose_messages(name: str) -> str:
    """Return the hint that a field has messages."""
    return f"pass {MESSAGES_FIELD} {shlex.quote(name)}"


def hint_about(value: Any, name: str, option: str) -> str | None:
    """Return the hint about a conversation in a field that is read as a text; None if it is none.

    Args:
        option: which asks for the field.
    """
    if not is_conversation(value):
        return None
    return JOIN_HINT if option in PAIR_OPTIONS else propose_messages(name)
