"""Read JSON: the lines of a .jsonl file, or the elements of one array, or lines, in a .json file.

Blocks are parsed by orjson, which reads an integer above 64 bits as floating point; of equal keys
the last one counts. The elements of an array are found by their brackets and commas, at about 300
MB/s with numpy, and parsed later, so that at most a block of 1 MiB and one element are in memory.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from seqpack_cli.corpus.fields import (
    MESSAGES_FIELD,
    SKIP_HINT,
    BadRecordError,
    Field,
    RawRecords,
    decode,
    find_conversation,
    is_conversation,
    missing_field_error,
    propose_messages,
)
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import (
    MARK,
    OnRead,
    RawBlock,
    check_size,
    check_sizes,
    find_line_number,
    iter_blocks,
    split_lines,
)
from seqpack_cli.errors import DataError, quote
from seqpack_cli.files.json_files import JSON_TYPES
from seqpack_cli.limits import LIMITS

JSON_FORMATS = ("jsonl", "json")
LINES_HINT = "pass --format json if the file is one array of objects"
# Where the next element begins is not known for certain, so that skipping one could lose others.
ARRAY_HINT = "correct the file, or write its records as JSON lines"
SPACE = b" \t\r\n"
HEAD_BYTES = 1 << 12
MAX_FILES = 1000  # whose beginnings are checked before a run
MAX_LINE_BYTES = 1 << 26  # of one that is checked
# Keys under which the records of an object often are.
RECORDS_KEY = re.compile(rb'"(data|rows|records|examples|instances|items|documents)"\s*:\s*\[')
MAP = re.compile(rb'\{\s*"[^"]*\d[^"]*"\s*:\s*"')  # of ids to texts
QUOTE, COMMA = 2, 3
STEPS = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}  # to the depth
KINDS = STEPS | {ord('"'): QUOTE, ord(","): COMMA}
MARKS = bytes(KINDS.get(byte, 0) & 0xFF for byte in range(256))
# A template needs a few of Python's frames per level, and 1,000 are allowed, so that whether a
# record is accepted must not depend on how deep the caller stands.
MAX_DEPTH = 100
_encode = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # MAX_DEPTH is checked
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
).encode


def make_json_records(
    block: RawBlock, source: Source, fields: Sequence[Field], options: DocumentOptions
) -> RawRecords:
    """Return the records of a block; an element of an array that is not JSON is a DataError."""
    find_place = functools.partial(block.find_place, source)

    def read_row(index: int) -> list[Any] | None:
        line = read_text(block, index, options)
        if not line.strip() and not block.is_array:
            return None
        try:
            value = parse_json(line)
        except BadRecordError as error:
            if not block.is_array:
                raise
            reason = error.reason if line.strip() else "nothing between commas, expected an object"
            raise DataError(f"{find_place(index)}: {reason}", ARRAY_HINT) from error
        return read_fields(check_object(value, fields[0].name), fields)

    return RawRecords(
        len(block.records),
        block.num_bytes,
        functools.partial(read_columns, block.records, fields),
        read_row,
        find_place,
        block.find_start,
    )


def read_text(block: RawBlock, index: int, options: DocumentOptions) -> str:
    """Decode a record of a text; raises BadEncodingError."""
    record = block.records[index].lstrip(SPACE) if block.is_array else block.records[index]
    text = decode(record, options.encoding_errors)
    is_first = index == 0 and block.find_start(0) == 0
    return text.removeprefix(MARK.decode()) if is_first else text


def read_columns(records: list[bytes], fields: Sequence[Field]) -> list[list[Any]]:
    """Return the values of each field of some records.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a record is bad.
    """
    finders = [_make_finder(field.name, field.is_optional) for field in fields]
    columns: list[list[Any]] = [[] for _ in finders]
    step = max(1, len(records) * LIMITS.json_bytes // max(1, sum(map(len, records))))
    for start in range(0, len(records), step):
        objects = list(map(orjson.loads, records[start : start + step]))
        for column, find in zip(columns, finders, strict=True):
            column.extend(map(find, objects))
    return columns


def _make_finder(name: str, is_optional: bool) -> Callable[[Any], Any]:
    """Return the function that finds a field in an object."""
    if "." in name:
        return functools.partial(find_optional if is_optional else find_field, name=name)
    return methodcaller("get", name) if is_optional else itemgetter(name)


def find_field(value: dict[str, Any], name: str) -> Any:
    """Return a field of an object: the whole name as one key, or else a dotted path of keys.

    Raises:
        KeyError, TypeError: there is none.
    """
    return (
        value[name]
        if name in value
        else functools.reduce(lambda inner, key: inner[key], name.split("."), value)
    )


def find_optional(value: dict[str, Any], name: str) -> Any:
    """Return a field of an object, None if there is none."""
    try:
        return find_field(value, name)
    except (KeyError, TypeError):
        return None


def read_fields(value: dict[str, Any], fields: Sequence[Field]) -> list[Any]:
    """Return the fields of an object; raises BadRecordError if one is missing."""
    found = []
    for field in fields:
        try:
            found.append(find_field(value, field.name))
        except (KeyError, TypeError) as error:
            if not field.is_optional:
                raise missing_field_error("field", field, value, fields) from error
            found.append(None)
        if field.option == MESSAGES_FIELD and not is_conversation(found[-1]):
            name = find_conversation(value)
            if name is not None:
                kind = JSON_TYPES[type(found[-1])]
                reason = f"field {quote(field.name)} is {kind}, expected a list of messages"
                raise BadRecordError(reason, propose_messages(name))
    return found


def parse_json(line: str) -> Any:
    """Parse a record; raises BadRecordError if it is not JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        found = quote(line[max(0, error.pos - 20) : error.pos + 20])
        place = f"column {error.colno}"
        if error.lineno > 1:  # in an element of an array
            place = f"line {error.lineno} of the record, {place}"
        hint = LINES_HINT if line.strip() == "[" else SKIP_HINT
        raise BadRecordError(f"not JSON at {place} ({error.msg}): {found}", hint) from error


def check_object(value: Any, field: str) -> dict[str, Any]:
    """Return a value that must be an object; raises BadRecordError."""
    if isinstance(value, dict):
        return value
    hint = f'write each record as an object: {{"{field}": …}}' if field.isidentifier() else None
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        hint = LINES_HINT
    found = JSON_TYPES[type(value)]
    raise BadRecordError(f"{found}, expected an object with field {quote(field)}", hint)


def encode_canonical(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON with sorted keys and without spaces: equal values, equal bytes.

    It is what is hashed of a record with several fields. orjson writes it ten times as fast, but
    numbers with a fraction in another way, so that only strings, integers, true, false and null are
    left to it.

    Raises:
        RecursionError: it is nested more than MAX_DEPTH levels deep.
        UnicodeEncodeError: a string has a lone surrogate.
        TypeError, ValueError: it has what JSON does not have.

    >>> encode_canonical({"b": ["Hé"], "a": 1.5}).decode()
    '{"a":1.5,"b":["Hé"]}'
    """
    level: list[Any] = [record]
    is_simple = True
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                inner += value.values()
            elif kind is list:
                inner += value
            elif kind is not str and kind is not int and kind is not bool and value is not None:
                is_simple = False
                if kind is tuple:
                    inner += value
        if not inner:
            break
        level = inner
    else:
        raise RecursionError
    with contextlib.suppress(TypeError):  # an integer above 64 bits, or a lone surrogate
        if is_simple:
            return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    return _encode(record).encode()


def iter_raw_json(
    source_range: SourceRange, max_document_bytes: int, on_read: OnRead | None
) -> Iterator[RawBlock]:
    """Read the lines of JSON lines, or the elements of an array, block by block.

    Raises:
        DataError: the file is something else, is truncated, or a record is larger than
            max_document_bytes.
    """
    source, blocks = source_range.source, iter_blocks(source_range, on_read)
    if source.format == "json":
        head, start = _read_head(blocks, source, max_document_bytes)
        blocks = itertools.chain([head[start:]], blocks)
        if start is not None:
            yield from _split_array(blocks, source, start, max_document_bytes)
            return
    yield from split_lines(blocks, source_range, max_document_bytes)


def check_arrays(sources: Sequence[Source]) -> None:
    """Read the beginnings of the first .json files, before a run begins.

    Raises:
        DataError: one is not an array, nor JSON lines.
    """
    named = [source for source in sources if source.format == "json" and not source.compression]
    for source in named[:MAX_FILES]:
        with contextlib.suppress(OSError):  # reported when the file is read
            head = source.input.read_head(HEAD_BYTES).removeprefix(MARK).lstrip(SPACE)
            if head and not head.startswith(b"["):
                whole = SourceRange(0, source, 0, source.num_bytes)
                _read_head(iter_blocks(whole, None), source, MAX_LINE_BYTES)


def _read_head(blocks: Iterator[bytes], source: Source, limit: int) -> tuple[bytes, int | None]:
    """Read until it is known what a file is: JSON lines, if two lines begin with `{`.

    Returns:
        What was read, and the byte after the bracket that opens the array; None for JSON lines.
    """
    head = b""
    while True:
        text = head.removeprefix(MARK).lstrip(SPACE)
        if text.startswith(b"["):
            return head, len(head) - len(text) + 1
        after = text.partition(b"\n")[2].lstrip(SPACE) if text.startswith(b"{") else text
        is_known = after if text.startswith(b"{") else len(text) >= HEAD_BYTES
        if is_known or len(head) > limit or not (block := next(blocks, b"")):
            break
        head += block
    if text.startswith(b"{") and after.startswith(b"{"):
        return head, None
    if not text:
        raise DataError(f"{source.path}: no JSON, expected an array of objects")
    what = "an object" if text.startswith(b"{") else "a file"
    raise DataError(
        f"{source.path}: {what} that begins with {_quote(text)}, expected an array of objects",
        hint=_hint_array(source, text),
    )


def _hint_array(source: Source, text: bytes) -> str:
    key = RECORDS_KEY.search(text[:HEAD_BYTES]) if text.startswith(b"{") else None
    if MAP.match(text):
        records = "to_entries[] | {id: .key, text: .value}"
    elif key is not None:
        records = f".{key[1].decode()}[]"
    else:
        return "pass --format jsonl if each line is one JSON object"
    typed, command = shlex.quote(source.path), f"jq -c '{records}'"
    pipe = (
        f"{source.compression} -dc {typed} | {command}"
        if source.compression
        else f"{command} {typed}"
    )
    result = Path(Path(source.path).name.partition(".")[0]).with_suffix(".jsonl")
    return f"write its records as JSON lines: {pipe} > {shlex.quote(str(result))}"


def _quote(text: bytes) -> str:
    return quote(text[:HEAD_BYTES].decode(errors="replace"))


def _split_array(
    blocks: Iterator[bytes], source: Source, start: int, limit: int
) -> Iterator[RawBlock]:
    """Split what follows the opening bracket, which ends at a byte of the text, into elements."""
    depth, is_in_string = 1, False
    num_records = 0
    text = held = b""  # from the byte `start` on; a backslash without what it escapes
    for block in blocks:
        block = held + block
        plain = block
        if b"\\" in block:  # found ten times as fast as a pair of bytes
            plain = block.replace(rb"\\", b"__").replace(rb"\"", b"__")
        held = b"\\" if plain.endswith(b"\\") else b""
        ends, depth, is_in_string = _find_ends(plain, depth, is_in_string)
        ends += len(text)
        text += block.removesuffix(held)
        begins = [0, *(ends + 1).tolist()]
        elements = [text[begin:end] for begin, end in zip(begins, ends.tolist(), strict=False)]
        if not depth and num_records + len(elements) == 1 and not elements[0].strip(SPACE):
            elements = []  # the array is empty
        starts = [start + begin for begin in begins[: len(elements)]]
        if elements:
            found = RawBlock(elements, 0, sum(map(len, elements)), False, starts, num_records)
            check_sizes(found, source, limit)
            yield found
        num_records += len(elements)
        if not depth:
            last, expected = begins[-1] - 1, "']' at the end of the array"
            if text[last:].startswith(b"]"):
                last, expected = last + 1, "the end of the file after the array"
            rest = itertools.chain([text[last:]], blocks)
            return _check_end(rest, source, start + last, expected)
        start += begins[-1]
        text = text[begins[-1] :]
        check_size(len(text), start, source, limit)
    raise DataError(
        f"{source.path}:{find_line_number(source, start + len(text))}: truncated, expected ']' at "
        "the end of the array",
        hint="download or copy the file again",
    )


def _find_ends(block: bytes, depth: int, is_in_string: bool) -> tuple[np.ndarray, int, bool]:
    """Return where elements of the array end, up to its closing bracket, and the state then.

    Args:
        block: without escaped quotation marks.
        depth: of brackets at the beginning of the block; 1 between elements.
        is_in_string: whether the block begins inside a string.
    """
    table = np.frombuffer(block.translate(MARKS), np.int8)
    places = np.flatnonzero(table.view(np.bool_))
    marks = table[places]
    num_quotes = np.cumsum(marks == QUOTE) + is_in_string
    is_outside = (num_quotes & 1 == 0) & (marks != QUOTE)
    is_in_string = bool(num_quotes[-1] & 1) if len(marks) else is_in_string
    places, marks = places[is_outside], marks[is_outside]
    depths = depth + np.cumsum(np.where(marks == COMMA, 0, marks))
    ends = np.flatnonzero((depths == 0) | ((depths == 1) & (marks == COMMA)))
    if (closed := np.flatnonzero(depths[ends] == 0)).size:
        return places[ends[: closed[0] + 1]], 0, is_in_string
    return places[ends], int(depths[-1]) if len(depths) else depth, is_in_string


def _check_end(blocks: Iterator[bytes], source: Source, start: int, expected: str) -> None:
    """Raise DataError unless the rest of a file, from a byte of its text, is blank."""
    for block in blocks:
        found = block.lstrip(SPACE)
        start += len(block) - len(found)
        if found:
            place = f"{source.path}:{find_line_number(source, start)}"
            raise DataError(f"{place}: {_quote(found)}, expected {expected}")
