"""Read the rows of a CSV or TSV file as documents, with Python's csv module.

The first row names the columns. A quoted field may contain line ends, so one worker reads the whole
file. Rows are checked strictly: an unclosed quote, or a row with more or fewer fields than the
first, is an error.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqpack_cli.corpus.blocks import OnRead, iter_blocks
from seqpack_cli.corpus.document_block import (
    BYTE_ORDER_MARK,
    BadEncodingError,
    BadRecordError,
    DocumentBlock,
    Texts,
    oversized_error,
)
from seqpack_cli.corpus.kept_fields import Readers, read_values
from seqpack_cli.corpus.missing_fields import KEEP, missing_field_error
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import split_lines
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.text_reader import Made, TextReader
from seqpack_cli.errors import DataError, quote
from seqpack_cli.limits import LIMITS

MAX_CHARACTER_BYTES = 4  # in UTF-8
MAX_FIELD = 2**31 - 1  # the limit of the csv module

Wanted = Sequence[tuple[str, str]]  # each column, and the option that asks for it


@dataclass
class _Rows:
    """The rows of a block."""

    fields: list[list[str] | BadRecordError] = field(default_factory=list)  # none: a blank line
    lines: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)  # where each begins
    num_characters: int = 0

    def add(self, found: list[str] | BadRecordError, line: int, byte: int) -> None:
        """Add the text and the kept fields of a row, or why there are none."""
        self.fields.append(found)
        self.lines.append(line)
        self.bytes.append(byte)
        if isinstance(found, list):
            self.num_characters += sum(map(len, found))

    @property
    def is_full(self) -> bool:
        """Return whether it is time for the next block."""
        is_long = self.num_characters >= LIMITS.batch_bytes
        return is_long or len(self.lines) >= LIMITS.rows_per_batch


def iter_csv_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers,
    text: TextReader,
) -> Iterator[DocumentBlock]:
    """Read the documents of a CSV file, block by block; a blank line is an empty document."""
    source = source_range.source
    num_records = 0
    num_lists = text.num_values + len(readers)
    wanted = list(zip(text.names, text.options, strict=True))
    wanted += [(reader.name, KEEP) for reader in readers]
    for rows in _iter_rows(source_range, options, on_read, wanted):
        found = Texts(options, num_records, fields=[[] for _ in range(num_lists)])
        quick = _read_all(rows, options, text, readers)
        if quick is None:
            _read_each(rows, source, found, text, readers)
        else:
            found.texts, found.fields = quick
        find_place = functools.partial(_find_place, source, rows)
        yield DocumentBlock(
            source, found.texts, found.rejects, rows.num_characters, find_place, found.fields
        )
        num_records += len(rows.lines)


def _iter_rows(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    wanted: Wanted,
) -> Iterator[_Rows]:
    """Yield the fields of the text and the kept ones of rows, block by block."""
    source = source_range.source
    csv.field_size_limit(min(options.max_document_bytes, MAX_FIELD))
    position = [0]  # the byte after the lines read so far
    lines = _iter_lines(source_range, options, on_read, position)
    reader = csv.reader(lines, delimiter=source.delimiter, strict=True)
    columns: list[int] | None = None
    num_columns = 0
    rows = _Rows()
    while True:
        line, byte = reader.line_num + 1, position[0]
        place = f"{source.path}:{line}"
        try:
            row = next(reader, None)
            if row is None:
                break
            if columns is None:
                columns = [_find_column(row, *each, wanted, place) for each in wanted]
                num_columns = len(row)
                continue
            rows.add(_take(row, columns, num_columns), line, byte)
        except csv.Error as error:
            if "field limit" in str(error):
                yield rows  # an error in an earlier row comes first
                raise oversized_error(place, options.max_document_bytes) from error
            if columns is None:
                raise DataError(f"{place}: not CSV ({error})") from error
            rows.add(BadRecordError(f"not CSV ({error})"), line, byte)
        if rows.is_full:
            yield rows
            rows = _Rows()
    if rows.lines:
        yield rows


def _take(row: list[str], columns: list[int], num_columns: int) -> list[str] | BadRecordError:
    if len(row) == num_columns:
        return [row[column] for column in columns]
    if not row:
        return row  # a blank line
    return BadRecordError(f"{len(row)} fields, expected {num_columns} as in the first row")


def _read_all(
    rows: _Rows, options: DocumentOptions, text: TextReader, readers: Readers
) -> Made | None:
    """Read a block as a whole; return None if its rows must be read one by one."""
    if rows.num_characters * MAX_CHARACTER_BYTES > options.max_document_bytes:
        return None
    try:
        columns = list(map(list, zip(*rows.fields, strict=True)))
        if not columns:
            return None  # no rows, or blank lines
        for values in columns:
            "".join(values).encode()
        of_text, kept = columns[: len(text.names)], columns[len(text.names) :]
        parsed = [
            list(map(reader.parse, values)) for reader, values in zip(readers, kept, strict=True)
        ]
        texts, beside = text.read_all(of_text)
        found = [
            read_values(reader, values, of_text[0])
            for reader, values in zip(readers, parsed, strict=True)
        ]
        return texts, [*beside, *found]
    except (TypeError, ValueError, BadRecordError):
        return None


def _read_each(
    rows: _Rows, source: Source, found: Texts, text: TextReader, readers: Readers
) -> None:
    """Read a block row by row."""
    for index, fields in enumerate(rows.fields):
        place = _find_place(source, rows, index)
        try:
            if isinstance(fields, BadRecordError):
                raise fields
            _check_size(fields[: len(text.names)], found.options.max_document_bytes, place)
            found.add(*_read_row(fields, text, readers))
        except BadRecordError as error:
            found.reject(error, rows.bytes[index], place.__str__)


def _find_place(source: Source, rows: _Rows, index: int) -> str:
    return f"{source.path}:{rows.lines[index]}"


def _iter_lines(
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead, position: list[int]
) -> Iterator[str]:
    """Yield the lines with their ends; a byte that is not UTF-8 becomes a lone surrogate."""
    errors = "replace" if options.encoding_errors == "replace" else "surrogateescape"
    blocks = split_lines(
        iter_blocks(source_range, on_read), source_range, options.max_document_bytes
    )
    for block in blocks:
        for record in block.records:
            line = record.decode(errors=errors)
            if position[0] == 0:
                line = line.removeprefix(BYTE_ORDER_MARK)
            position[0] += len(record) + 1
            yield line + "\n"


def _find_column(row: list[str], name: str, option: str, wanted: Wanted, place: str) -> int:
    """Return the number of a column."""
    if row.count(name) == 1:
        return row.index(name)
    if name in row:
        raise DataError(f"{place}: {row.count(name)} columns named {quote(name)}")
    found = dict.fromkeys(filter(None, row), "")
    taken = [name for name, option in wanted if option != KEEP]
    error = missing_field_error("column", option, name, found, taken=taken)
    raise DataError(f"{place}: {error.reason}", hint=error.hint)


def _read_row(fields: list[str], text: TextReader, readers: Readers) -> tuple[str, list[Any]]:
    """Return the text of a row, and what stands beside it."""
    if not fields:
        return "", [None] * (text.num_values + len(readers))  # a blank line
    for value in fields:
        _count_bytes(value)
    of_text, kept = fields[: len(text.names)], fields[len(text.names) :]
    made, beside = text.read(of_text)
    found = [
        reader.read(reader.parse(value), of_text[0])
        for reader, value in zip(readers, kept, strict=True)
    ]
    return made, [*beside, *found]


def _check_size(texts: list[str], limit: int, place: str) -> None:
    if sum(map(_count_bytes, texts)) > limit:
        raise oversized_error(place, limit)


def _count_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        found = ord(text[error.start]) & 0xFF  # surrogateescape keeps the byte there
        raise BadEncodingError(found, 0) from error
