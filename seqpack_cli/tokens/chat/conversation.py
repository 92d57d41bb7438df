"""Check the messages and tools of a record, and prepare them as transformers does."""

from __future__ import annotations

from itertools import chain
from typing import Any

from seqpack_cli.corpus.fields import SKIP_HINT, BadRecordError
from seqpack_cli.corpus.json_records import MAX_DEPTH, encode_canonical
from seqpack_cli.errors import join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
SHAREGPT_FIELDS = frozenset({"from", "value"})
SHAREGPT_HINT = (
    "rename 'from' to 'role' and 'value' to 'content', and the roles human and gpt to user and "
    "assistant"
)


def check_conversation(messages: Any, tools: Any) -> None:
    """Raise BadRecordError unless messages are objects with a role, and tools are objects."""
    if type(messages) is not list:
        raise BadRecordError(f"messages: {_name_type(messages)}, expected a list")
    for number, message in enumerate(messages, 1):
        if type(message) is not dict:
            raise BadRecordError(f"message {number:,}: {_name_type(message)}, expected an object")
        role = message.get("role")
        if type(role) is not str:
            found = f"field 'role' is {_name_type(role)}, expected a string"
            if "role" not in message:
                found = f"no field 'role' (found: {join_items(map(quote, message)) or 'none'})"
            hint = SHAREGPT_HINT if message.keys() >= SHAREGPT_FIELDS else SKIP_HINT
            raise BadRecordError(f"message {number:,}: {found}", hint)
    if tools is None:
        return
    if type(tools) is not list:
        raise BadRecordError(f"tools: {_name_type(tools)}, expected a list")
    for number, tool in enumerate(tools, 1):
        if type(tool) is not dict:
            raise BadRecordError(f"tool {number:,}: {_name_type(tool)}, expected an object")


def encode_conversation(messages: list[Any], tools: list[Any] | None) -> bytes:
    """Return JSON that is the same for equal conversations.

    Raises:
        BadRecordError: they have what JSON does not have, or are nested too deeply.

    >>> encode_conversation([{"role": "user", "content": "Hi"}], None)
    b'{"messages":[{"content":"Hi","role":"user"}]}'
    """
    record = {"messages": messages} if tools is None else {"messages": messages, "tools": tools}
    try:
        return encode_canonical(record)
    except (RecursionError, TypeError, ValueError) as error:
        name = "messages"
        if tools is not None:
            encode_conversation(messages, None)  # raises if they are at fault
            name = "tools"
        raise BadRecordError(f"{name}: {_describe(error)}") from error


def check_text(text: str) -> None:
    """Raise BadRecordError if a text has a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRecordError(f"messages: {_describe(error)}") from error


def leave_out_nulls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without the fields that are null, which templates never see."""
    if None not in chain.from_iterable(map(dict.values, messages)):
        return messages
    return [
        {name: value for name, value in message.items() if value is not None}
        for message in messages
    ]


def name_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which what a model thought has the two names that templates read."""
    if set().union(*messages).isdisjoint(REASONING_FIELDS):
        return messages
    return [_name_thought(message) for message in messages]


def _name_thought(message: dict[str, Any]) -> dict[str, Any]:
    for name in REASONING_FIELDS:
        if name in message:
            reasoning = message[name]
            return {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def _describe(error: Exception) -> str:
    """Return what was found instead of what JSON has."""
    if isinstance(error, RecursionError):
        return f"nested more than {MAX_DEPTH} levels deep"
    if isinstance(error, UnicodeEncodeError):
        found = f"\\u{ord(error.object[error.start]):04x}"
        return f"lone surrogate {found}, expected Unicode text"
    found = "NaN or an infinite number" if isinstance(error, ValueError) else str(error)
    return f"{found}, expected JSON"


def _name_type(value: Any) -> str:
    return JSON_TYPES.get(type(value), type(value).__name__)
