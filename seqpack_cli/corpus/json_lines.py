"""Read the texts of JSON lines.

A line must be one object with a string in its text field: a key, or a dotted path of keys. Whole
blocks are parsed by orjson where it is installed (by the standard library otherwise, four times
slower). If that fails, each line is parsed by the standard library, which says what is wrong. Both
accept the same lines, unless they nest a thousand deep, and return the same texts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from seqpack_cli.corpus.document_block import (
    SKIP_HINT,
    BadRecordError,
    NotJsonError,
    is_unicode,
)
from seqpack_cli.corpus.missing_fields import TEXT_FIELD, missing_field_error
from seqpack_cli.corpus.words import join_words
from seqpack_cli.errors import quote
from seqpack_cli.files.json_files import JSON_TYPES

ARRAY_HINT = "pass --format json if the file is one array of objects"


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
    loads, _, may_return_surrogates, _ = find_parser()
    try:
        if len(keys) == 1:
            texts = [loads(record)[text_field] for record in records]
        else:
            texts = [functools.reduce(_look_up, keys, loads(record)) for record in records]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    if any(type(text) is not str for text in texts):
        return None
    if may_return_surrogates and not all(map(is_unicode, texts)):
        return None
    return texts


def read_json_text(line: str, text_field: str) -> str:
    """Read the text of one line that is not blank.

    Raises:
        BadRecordError: it is not JSON, has no string in the field, or has a duplicate key there.
    """
    raw = line.encode()
    keys = {key for key in list_keys(text_field) if raw.count(_spell(key)) > 1}
    value = parse_object(line, keys, text_field)
    try:
        text = find_field(value, text_field, has_literal=_spell(text_field) in raw)
    except KeyError as error:
        raise missing_field_error("field", TEXT_FIELD, text_field, value) from error
    return join_words(text, text_field, takes_words=False)


def list_keys(name: str) -> list[str]:
    """Return the keys under which a field can be: its whole name, and those of its path."""
    return [name, *name.split(".")]


def parse_object(line: str, keys: Container[str] | None, text_field: str) -> dict[str, Any]:
    """Parse a line with the standard library.

    Args:
        keys: those that no object of the line may have twice; None is all.

    Raises:
        BadRecordError: it is not a JSON object, or has a duplicate key.
    """

    def check_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            names = [name for name, _ in pairs]
            checked = names if keys is None else [name for name in names if name in keys]
            twice = next((name for name in checked if checked.count(name) > 1), None)
            if twice is not None:
                raise BadRecordError(f"duplicate key {quote(twice)} in an object")
        return value

    try:
        value = json.loads(line, object_pairs_hook=check_object)
    except json.JSONDecodeError as error:
        found = quote(line[max(0, error.pos - 20) : error.pos + 20])
        place = f"column {error.colno}"
        if error.lineno > 1:  # in an element of an array
            place = f"line {error.lineno} of the record, {place}"
        hint = ARRAY_HINT if line.strip() == "[" else SKIP_HINT
        raise NotJsonError(f"not JSON at {place} ({error.msg}): {found}", hint) from error
    except RecursionError as error:
        raise BadRecordError("cannot be parsed as JSON (nested too deeply)") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadRecordError(f"cannot be parsed as JSON ({error})") from error
    if not isinstance(value, dict):
        raise BadRecordError(
            f"{JSON_TYPES[type(value)]}, expected an object with field {quote(text_field)}",
            hint=_hint_object(value, text_field),
        )
    return value


def _hint_object(value: Any, field: str) -> str | None:
    """Return the hint about a value that is not an object."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return ARRAY_HINT
    return f'write each record as an object: {{"{field}": …}}' if field.isidentifier() else None


def find_field(value: dict[str, Any], name: str, *, has_literal: bool = True) -> Any:
    """Return a field of an object: the whole name as one key, or else a dotted path of keys.

    Raises:
        KeyError: there is none.
    """
    if has_literal and name in value:
        return value[name]
    inner: Any = value
    for key in name.split("."):
        if not isinstance(inner, dict) or key not in inner:
            raise KeyError(name)
        inner = inner[key]
    return inner


class Parser(NamedTuple):
    """How a line is parsed quickly."""

    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]
    may_return_surrogates: bool
    dump_sorted: Callable[[Any], bytes] | None = None


@functools.cache
def find_parser() -> Parser:
    """Return the functions of orjson, or else those of the standard library."""
    try:
        import orjson
    except ImportError:
        return Parser(lambda record: json.loads(record.decode()), _dump, True)
    dump_sorted = functools.partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)
    return Parser(orjson.loads, orjson.dumps, False, dump_sorted)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


@functools.cache
def _spell(key: str) -> bytes:
    """Return a key as JSON writes it, quoted, without escapes."""
    return _dump(key)


def _look_up(value: Any, key: str) -> Any:
    return value[key]
