"""Read JSON: the lines of a .jsonl file, or the elements of one array, or lines, in a .json file.

Blocks are parsed by orjson, which reads an integer above 64 bits as floating point; of equal keys
the last one counts. The elements of an array are found by their brackets and commas with numpy, at
about 300 MB/s, and parsed later, so that at most a block of 1 MiB and one element are in memory.
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
    KEEP,
    MESSAGES_FIELD,
    SKIP_HINT,
    BadRecordError,
    Field,
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
MAX_BLANK_BYTES = 64 << 20  # before the first value
# Keys under which the records of an object often are.
RECORDS_KEY = re.compile(rb'"(data|rows|records|examples|instances|items|documents)"\s*:\s*\[')
MAP = re.compile(rb'\{\s*"[^"]*\d[^"]*"\s*:\s*"')  # of ids to texts
QUOTE, COMMA, OPENING, CLOSING, BACKSLASH = 1, 2, 3, 4, 5
KINDS = dict(
    zip(b'",[{]}\\', (QUOTE, COMMA, OPENING, OPENING, CLOSING, CLOSING, BACKSLASH), strict=True)
)
MARKS = bytes(KINDS.get(byte, 0) for byte in range(256))
STEPS = np.array([0, 0, 0, 1, -1, 0])  # to the depth, of each mark
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


class JsonRecords:
    """Some records of a file of JSON."""

    def __init__(
        self, block: RawBlock, source: Source, fields: Sequence[Field], options: DocumentOptions
    ) -> None:
        self.num_records, self.num_bytes = len(block.records), block.num_bytes
        self._block, self._fields, self._options = block, fields, options
        self.find_place = functools.partial(block.find_place, source)
        self.find_byte = block.find_start

    def read_columns(self) -> list[list[Any]]:
        """Return the values of each field; raise an error if a record is bad or blank."""
        return read_columns(self._block.records, self._fields)

    def read_row(self, index: int) -> list[Any] | None:
        """Return the fields of a record, None for a blank line.

        Raises:
            BadRecordError: it is not an object, or lacks a field.
            DataError: an element of an array is not JSON.
        """
        record = self._block.records[index]
        record = record.lstrip(SPACE) if self._block.is_array else record
        line = decode(record, self._options.encoding_errors)
        if not self._block.is_array:
            if index == 0 and self._block.start == 0:
                line = line.removeprefix(MARK.decode())
            if not line.strip():
                return None
        try:
            value = parse_json(line)
        except BadRecordError as error:
            if not self._block.is_array:
                raise
            reason = error.reason if line.strip() else "nothing between commas, expected an object"
            raise DataError(f"{self.find_place(index)}: {reason}", ARRAY_HINT) from error
        return read_fields(check_object(value, self._fields[0].name), self._fields)


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


@functools.lru_cache(maxsize=64)
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
                taken = [each.name for each in fields if KEEP not in (each.option, field.option)]
                raise missing_field_error(
                    "field", field.option, field.name, value, taken=taken
                ) from error
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
        seen, start = _read_head(blocks, source, max_document_bytes)
        if start is not None:
            blocks = itertools.chain([b"".join(seen)[start:]], blocks)
            yield from _split_array(blocks, source, start, max_document_bytes)
            return
        blocks = itertools.chain(seen, blocks)
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


def _read_head(
    blocks: Iterator[bytes], source: Source, limit: int
) -> tuple[list[bytes], int | None]:
    """Read the blocks that tell what a file is: JSON lines, if two lines begin with `{`.

    Returns:
        The blocks, and the byte after the bracket that opens the array; None for JSON lines.
    """
    seen: list[bytes] = []
    text = b""
    while MARK.startswith(text) and sum(map(len, seen)) < MAX_BLANK_BYTES:
        block = next(blocks, None)
        if block is None:
            break
        seen.append(block)
        text = b"".join(seen).removeprefix(MARK).lstrip(SPACE)
    if text.startswith(b"["):
        return seen, sum(map(len, seen)) - len(text) + 1
    if text.startswith(b"{"):
        head = bytearray(text)
        while not (rest := head.partition(b"\n")[2].lstrip(SPACE)) and len(head) <= limit:
            block = next(blocks, None)
            if block is None:
                break
            seen.append(block)
            head += block
        if rest.startswith(b"{"):
            return seen, None
        text = bytes(head)
    text = _read_more(text, blocks)
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


def _read_more(text: bytes, blocks: Iterator[bytes]) -> bytes:
    """Return a text with as much of what follows as an error message may quote."""
    while len(text) < HEAD_BYTES and (block := next(blocks, None)) is not None:
        text += block
    return text


def _quote(text: bytes) -> str:
    return quote(text[:HEAD_BYTES].decode(errors="replace"))


def _split_array(
    blocks: Iterator[bytes], source: Source, start: int, limit: int
) -> Iterator[RawBlock]:
    """Split what follows the opening bracket, which ends at a byte of the text, into elements."""
    depth, is_in_string = 1, False
    rest: list[bytes] = []  # the pieces of an element whose end is not read yet
    num_rest = num_records = 0
    for block in _hold_escapes(blocks):
        ends, depth, is_in_string = _find_ends(block, depth, is_in_string)
        begins = [0, *(end + 1 for end in ends)]
        elements = [block[begin:end] for begin, end in zip(begins, ends, strict=False)]
        starts = [start + begin for begin in begins[:-1]]
        if elements:
            elements[0] = b"".join([*rest, elements[0]])
            starts[0] -= num_rest
            rest, num_rest = [], 0
        if not depth and num_records + len(elements) == 1 and not elements[0].strip(SPACE):
            elements, starts = [], []  # the array is empty
        found = RawBlock(elements, 0, sum(map(len, elements)), False, starts, num_records)
        check_sizes(found, source, limit)
        yield found
        num_records += len(elements)
        if not depth:
            after = itertools.chain([block[ends[-1] :]], blocks)
            return _check_end(after, source, start + ends[-1])
        start += len(block)
        rest.append(block[begins[-1] :])
        num_rest += len(rest[-1])
        check_size(num_rest, start - num_rest, source, limit)
    raise DataError(
        f"{source.path}:{find_line_number(source, start)}: truncated, expected ']' at the end of "
        "the array",
        hint="download or copy the file again",
    )


def _hold_escapes(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks, none of which ends between a backslash and what it escapes."""
    escape = b""
    for block in blocks:
        block = escape + block
        escape = block[-1:] if (len(block) - len(block.rstrip(b"\\"))) % 2 else b""
        yield block.removesuffix(escape)
    if escape:
        yield escape


def _find_ends(block: bytes, depth: int, is_in_string: bool) -> tuple[list[int], int, bool]:
    """Return where elements of the array end, up to its closing bracket, and the state then.

    Args:
        depth: of brackets at the beginning of the block; 1 between elements.
        is_in_string: whether the block begins inside a string.
    """
    table = np.frombuffer(block.translate(MARKS), np.uint8)
    places = np.flatnonzero(table.view(np.bool_))
    marks = table[places]
    if b"\\" in block:
        _drop_escaped(places, marks)
    inside = (np.cumsum(marks == QUOTE) + is_in_string) & 1 == 1
    is_in_string = bool(inside[-1]) if len(inside) else is_in_string
    is_outside = ~inside & (marks != QUOTE)
    places, marks = places[is_outside], marks[is_outside]
    depths = depth + np.cumsum(STEPS[marks])
    closed = np.flatnonzero(depths == 0)
    if len(closed):
        places, marks, depths = (each[: closed[0] + 1] for each in (places, marks, depths))
    ends = places[((depths == 1) & (marks == COMMA)) | (depths == 0)]
    return ends.tolist(), int(depths[-1]) if len(depths) else depth, is_in_string


def _drop_escaped(places: np.ndarray, marks: np.ndarray) -> None:
    """Set the marks of escaped quotation marks to 0.

    In a run of backslashes, the first, the third and so on escape what follows.
    """
    slashes = np.flatnonzero(marks == BACKSLASH)
    numbers = np.arange(len(slashes))
    is_first = np.diff(places[slashes], prepend=-2) != 1
    firsts = np.maximum.accumulate(np.where(is_first, numbers, 0))
    slashes = slashes[(numbers - firsts) % 2 == 0]
    slashes = slashes[slashes + 1 < len(marks)]
    marks[slashes[places[slashes + 1] == places[slashes] + 1] + 1] = 0


def _check_end(blocks: Iterator[bytes], source: Source, start: int) -> None:
    """Raise DataError unless the rest of the file, from a byte of its text, is the last bracket."""
    expected = "']' at the end of the array"
    first = next(blocks)
    if first[:1] == b"]":
        expected = "the end of the file after the array"
        start += 1
        blocks = itertools.chain([first[1:]], blocks)
        for block in blocks:
            first = block.lstrip(SPACE)
            start += len(block) - len(first)
            if first:
                first = _read_more(first, blocks)
                break
        else:
            return
    else:
        first = first[:1]
    place = f"{source.path}:{find_line_number(source, start)}"
    raise DataError(f"{place}: {_quote(first)}, expected {expected}")
