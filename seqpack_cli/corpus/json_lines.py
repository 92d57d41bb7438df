"""Read the texts of JSON lines.

A line must be one object with a string in its text field: a key, or a dotted path of keys. Whole
blocks are parsed by orjson where it is installed (by the standard library otherwise, four times
slower). If that fails, each line is parsed by the standard library, which says what is wrong. Both
accept the same lines, unless they nest a thousand deep, and return the same texts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from seqpack_cli.corpus.document_block import BadRecordError, missing_field_error
from seqpack_cli.errors import quote


def read_json_texts(records: list[bytes], text_field: str) -> list[str] | None:
    """Read the texts of simple records at once; return None if any must be read on its own.

    In a simple record each key of the text field occurs once, so it cannot be a duplicate key. Keys
    spelled with escapes are not counted, here and below: no program writes one beside the same key
    without escapes, and a search for them would double the time.
    """
    keys = text_field.split(".")
    for key in map(_spell, keys):
        counts = [record.count(key) for record in records]
        if counts.count(1) != len(counts):
            return None
    if len(keys) > 1 and any(_spell(text_field) in record for record in records):
        return None
    loads, may_return_surrogates = _find_parser()
    try:
        if len(keys) == 1:
            texts = [loads(record)[text_field] for record in records]
        else:
            texts = [functools.reduce(_look_up, keys, loads(record)) for record in records]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    if any(type(text) is not str for text in texts):
        return None
    if may_return_surrogates and not all(map(_is_unicode, texts)):
        return None
    return texts


def read_json_text(line: str, text_field: str) -> str:
    """Read the text of one line that is not blank.

    Raises:
        BadRecordError: it is not JSON, has no string in the field, or has a duplicate key there.
    """
    raw = line.encode()
    keys = {key for key in (text_field, *text_field.split(".")) if raw.count(_spell(key)) > 1}

    def check_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next((name for name in names if name in keys and names.count(name) > 1), None)
            if twice is not None:
                raise BadRecordError(f"duplicate key {quote(twice)} in an object")
        return value

    try:
        value = json.loads(line, object_pairs_hook=check_object)
    except json.JSONDecodeError as error:
        found = quote(line[max(0, error.pos - 20) : error.pos + 20])
        raise BadRecordError(f"not JSON at column {error.colno} ({error.msg}): {found}") from error
    except RecursionError as error:
        raise BadRecordError("cannot be parsed as JSON (nested too deeply)") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadRecordError(f"cannot be parsed as JSON ({error})") from error
    text = _find_field(value, text_field, has_literal=_spell(text_field) in raw)
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise BadRecordError(f"field {quote(text_field)} is {kind}, expected a string")
    if not _is_unicode(text):
        found = next(f"\\u{ord(mark):04x}" for mark in text if "\ud800" <= mark <= "\udfff")
        raise BadRecordError(
            f"field {quote(text_field)} has the lone surrogate {found}, expected Unicode text"
        )
    return text


@functools.cache
def _find_parser() -> tuple[Callable[[bytes], Any], bool]:
    """Return the function that parses a line, and whether it accepts lone surrogates."""
    try:
        import orjson
    except ImportError:
        return lambda record: json.loads(record.decode()), True
    return orjson.loads, False


@functools.cache
def _spell(key: str) -> bytes:
    """Return a key as JSON writes it, quoted, without escapes."""
    return json.dumps(key, ensure_ascii=False).encode(errors="surrogatepass")


def _look_up(value: Any, key: str) -> Any:
    return value[key]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _find_field(value: Any, text_field: str, *, has_literal: bool) -> Any:
    """Return the field of an object: the whole name as one key, or else a dotted path of keys."""
    if not isinstance(value, dict):
        raise BadRecordError(
            f"a JSON {type(value).__name__}, expected an object with field {quote(text_field)}",
            hint=None,
        )
    if has_literal and text_field in value:
        return value[text_field]
    inner: Any = value
    for key in text_field.split("."):
        if not isinstance(inner, dict) or key not in inner:
            raise missing_field_error("field", text_field, value)
        inner = inner[key]
    return inner
