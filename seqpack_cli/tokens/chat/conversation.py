"""Check the messages and tools of a record, and prepare them as transformers does."""

from __future__ import annotations

import json
from typing import Any

from seqpack_cli.corpus.document_block import BadRecordError, is_unicode
from seqpack_cli.errors import join_items, quote
from seqpack_cli.files.json_files import JSON_TYPES

# A template needs a few of Python's frames per level, and 1,000 are allowed, so that whether a
# record is accepted must not depend on how deep the caller stands.
MAX_DEPTH = 100
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
_encode = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # MAX_DEPTH is checked
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
).encode


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
            raise BadRecordError(f"message {number:,}: {found}")
    if tools is None:
        return
    if type(tools) is not list:
        raise BadRecordError(f"tools: {_name_type(tools)}, expected a list")
    for number, tool in enumerate(tools, 1):
        if type(tool) is not dict:
            raise BadRecordError(f"tool {number:,}: {_name_type(tool)}, expected an object")


def encode_canonical(messages: list[Any], tools: list[Any] | None) -> str:
    """Return JSON that is the same for equal conversations.

    Raises:
        BadRecordError: they have what JSON does not have, or are nested too deeply.

    >>> encode_canonical([{"role": "user", "content": "Hé"}], None)
    '{"messages":[{"content":"Hé","role":"user"}]}'
    """
    record = {"messages": messages} if tools is None else {"messages": messages, "tools": tools}
    try:
        canonical = _encode(record)
    except RecursionError as error:
        raise _depth_error() from error
    except (TypeError, ValueError) as error:  # another type, or not a number
        raise BadRecordError(f"messages: {error}, expected JSON") from error
    if canonical.count("[") + canonical.count("{") > MAX_DEPTH:
        _check_depth(record)
    check_text(canonical)
    return canonical


def check_text(text: str) -> None:
    """Raise BadRecordError if a text has a lone surrogate."""
    if not is_unicode(text):
        found = next(f"\\u{ord(mark):04x}" for mark in text if "\ud800" <= mark <= "\udfff")
        raise BadRecordError(f"messages: lone surrogate {found}, expected Unicode text")


def prepare_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as templates expect them.

    Fields that are null are left out, and what a model thought has the two names that templates
    read.
    """
    return [_prepare(message) for message in messages]


def _prepare(message: dict[str, Any]) -> dict[str, Any]:
    if None in message.values():
        message = {name: value for name, value in message.items() if value is not None}
    for name in REASONING_FIELDS:
        if name in message:
            reasoning = message[name]
            return {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return message


def _check_depth(record: dict[str, Any]) -> None:
    level: list[Any] = [record]
    for _ in range(MAX_DEPTH):
        containers = [value for value in level if isinstance(value, dict | list | tuple)]
        level = [
            child
            for value in containers
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise _depth_error()


def _depth_error() -> BadRecordError:
    return BadRecordError(f"messages: nested more than {MAX_DEPTH} levels deep")


def _name_type(value: Any) -> str:
    return JSON_TYPES.get(type(value), type(value).__name__)
