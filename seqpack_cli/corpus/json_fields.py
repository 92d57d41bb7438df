"""Read the texts and the kept fields of JSON lines.

A block is parsed by orjson, a piece at a time. orjson silently takes the last of duplicate keys, so
what it parsed is written again: if no quotation mark is missing, no key was. It also reads integers
above 64 bits as floating point, so large numbers are left to the standard library, as are all
records that fail here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Any

from seqpack_cli.corpus.conversations import (
    MESSAGES_FIELD,
    find_conversation,
    is_conversation,
    propose_messages,
)
from seqpack_cli.corpus.document_block import BadRecordError, check_unicode
from seqpack_cli.corpus.json_lines import find_field, find_parser, list_keys, parse_object
from seqpack_cli.corpus.kept_fields import Readers, read_values
from seqpack_cli.corpus.levels import iter_levels
from seqpack_cli.corpus.missing_fields import KEEP, missing_field_error
from seqpack_cli.corpus.text_reader import Made, TextReader
from seqpack_cli.limits import LIMITS

MAX_LONG = 64  # records parsed together; texts of fewer, longer ones are not written again
EVERY_KEY = None  # none may be there twice
LARGE = 2.0**63  # a floating-point number from here on may have been an integer


def read_json_records(records: list[bytes], text: TextReader, readers: Readers) -> Made | None:
    """Read the texts and kept fields of simple records at once.

    Returns:
        The texts, and what stands beside them: what the text reader returns, and the values of each
        kept field; None if any record must be read on its own.
    """
    names = (*text.names, *(reader.name for reader in readers))
    num_texts = len(text.names)
    try:
        columns = read_columns(records, names, text.optional)
        of_text = [*columns[:num_texts], *columns[len(names) :]]
        kept = columns[num_texts : len(names)]
        if any(map(may_differ, (*kept, *of_text))):
            return None
        if find_parser().may_return_surrogates:
            for name, values in zip((*names, *text.optional), columns, strict=True):
                check_unicode(name, values)
        texts, beside = text.read_all(of_text)
        found = [
            read_values(reader, values, of_text[0])
            for reader, values in zip(readers, kept, strict=True)
        ]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, BadRecordError):
        return None
    return texts, [*beside, *found]


def read_json_record(line: str, text: TextReader, readers: Readers) -> tuple[str, list[Any]]:
    """Read the text, what stands beside it, and the kept fields of one line that is not blank.

    Raises:
        BadRecordError: it is not JSON, or a field is missing, duplicate or of another type.
    """
    names = (*text.names, *text.optional, *(reader.name for reader in readers))
    keys = {key for name in names for key in list_keys(name)} if text.takes_strings else EVERY_KEY
    value = parse_object(line, keys, text.names[0])
    raw_texts = [
        find_needed(value, name, option, (*text.names, *text.optional))
        for name, option in zip(text.names, text.options, strict=True)
    ]
    raw_texts += [find_optional(value, name) for name in text.optional]
    if not text.takes_strings:
        for name, raw_text in zip((*text.names, *text.optional), raw_texts, strict=True):
            check_unicode(name, raw_text)
    try:
        made, found = text.read(raw_texts)
    except BadRecordError as error:
        raise _propose_messages(error, value, text, raw_texts[0]) from error
    for reader in readers:
        field = find_needed(value, reader.name, KEEP)
        check_unicode(reader.name, field)
        found.append(reader.read(field, raw_texts[0]))
    return made, found


def _propose_messages(
    error: BadRecordError, record: dict[str, Any], text: TextReader, raw_text: Any
) -> BadRecordError:
    """Return the error, whose hint names the conversation of a record if another field was read."""
    name = find_conversation(record)
    if name is None or text.options[0] != MESSAGES_FIELD or is_conversation(raw_text):
        return error
    return BadRecordError(error.reason, propose_messages(name))


def find_needed(value: dict[str, Any], name: str, option: str, taken: Sequence[str] = ()) -> Any:
    """Return a field of an object; raises BadRecordError if there is none.

    Args:
        option: which asks for the field.
        taken: fields that other options ask for.
    """
    try:
        return find_field(value, name)
    except KeyError as error:
        raise missing_field_error("field", option, name, value, taken=taken) from error


def find_optional(value: dict[str, Any], name: str) -> Any:
    """Return a field of an object, None if there is none."""
    try:
        return find_field(value, name)
    except KeyError:
        return None


def read_columns(
    records: list[bytes], names: Sequence[str], optional: Sequence[str] = ()
) -> list[list[Any]]:
    """Return the values of each field, at once.

    Args:
        optional: fields whose value is None where a record lacks them; they come last.

    Raises:
        ValueError, TypeError, KeyError, IndexError, RecursionError: a record is bad.
    """
    loads, dumps, *_ = find_parser()
    finders: list[Callable[[Any], Any]] = list(map(_make_finder, names))
    finders += map(_make_optional_finder, optional)
    columns: list[list[Any]] = [[] for _ in finders]
    step = max(1, len(records) * LIMITS.json_bytes // max(1, sum(map(len, records))))
    for start in range(0, len(records), step):
        chunk = records[start : start + step]
        objects = list(map(loads, chunk))
        for column, find in zip(columns, finders, strict=True):
            column.extend(map(find, objects))
        num_cut = _cut_values(objects, names) if step < MAX_LONG else 0
        if not _has_all_keys(b"\n".join(chunk), dumps(objects), num_cut):
            raise ValueError("a duplicate key")
    return columns


@functools.lru_cache(maxsize=64)
def _make_finder(name: str) -> Callable[[Any], Any]:
    """Return the function that finds a field in an object; it raises if there is none."""
    if "." not in name:
        return itemgetter(name)
    keys = name.split(".")

    def find(value: Any) -> Any:
        return value[name] if name in value else functools.reduce(_look_up, keys, value)

    return find


def _make_optional_finder(name: str) -> Callable[[Any], Any]:
    """Return the function that finds a field in an object, None if there is none."""
    return functools.partial(find_optional, name=name) if "." in name else methodcaller("get", name)


def _look_up(value: Any, key: str) -> Any:
    return value[key]


def _cut_values(objects: list[dict[str, Any]], names: Sequence[str]) -> int:
    """Empty texts and lists of numbers, so that objects are written faster; return their quotes.

    Those in a list that is not of numbers alone are not counted: it is read on its own.
    """
    num_quotes = 0
    for value in objects:
        for name in names:
            found = value.get(name)
            if type(found) is str:
                num_quotes += found.count('"')
                value[name] = ""
            elif type(found) is list and found and type(found[0]) is int:
                value[name] = None
    return num_quotes


def _has_all_keys(text: bytes, parsed: bytes, num_cut: int) -> bool:
    """Return whether JSON that was parsed, and written again, has lost no key.

    Each key has two quotation marks. One inside a string may be spelled as an escape; counting
    too many of these only sends a record to the standard library. numpy counts faster, but it lets
    other threads run, and waits milliseconds for its turn.

    Args:
        num_cut: quotation marks in texts that were not written again.
    """
    spelled = text.count(b"\\u0022") if b"\\" in text else 0
    return text.count(b'"') + spelled == parsed.count(b'"') + num_cut


def may_differ(values: list[Any]) -> bool:
    """Return whether the standard library may have parsed other values than orjson."""
    for kinds, level in iter_levels(values):
        if float in kinds:
            sizes = [abs(value) for value in level if type(value) is float]
            if not max(sizes) < LARGE:
                return True
    return False
