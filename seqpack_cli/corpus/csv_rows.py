"""Read the rows of a CSV or TSV file as documents, with Python's csv module.

The first row names the columns. A quoted field may contain line ends, so one worker reads the whole
file. Rows are checked strictly: an unclosed quote, or a row with more or fewer fields than the
first, is an error.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field

from seqpack_cli.corpus.blocks import OnRead, iter_blocks
from seqpack_cli.corpus.document_block import (
    BYTE_ORDER_MARK,
    BadEncodingError,
    BadRecordError,
    DocumentBlock,
    DocumentOptions,
    Texts,
    missing_field_error,
    oversized_error,
)
from seqpack_cli.corpus.records import split_lines
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, quote

BLOCK_CHARACTERS = 1 << 20
MAX_FIELD = 2**31 - 1  # the limit of the csv module


@dataclass
class _Rows(Texts):
    """The rows of a block so far."""

    lines: list[int] = field(default_factory=list)
    num_characters: int = 0


def iter_csv_documents(
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead
) -> Iterator[DocumentBlock]:
    """Read the documents of a CSV file, block by block; a blank line is an empty document."""
    source = source_range.source
    csv.field_size_limit(min(options.max_document_bytes, MAX_FIELD))
    position = [0]  # the byte after the lines read so far
    lines = _iter_lines(source_range, options, on_read, position)
    reader = csv.reader(lines, delimiter=source.delimiter, strict=True)
    column: int | None = None
    num_columns = 0
    rows = _Rows(options, 0)
    while True:
        line, byte = reader.line_num + 1, position[0]
        place = f"{source.path}:{line}"
        try:
            row = next(reader, None)
            if row is None:
                break
            if column is None:
                column, num_columns = _find_column(row, options, place), len(row)
                continue
            rows.texts.append(_read_text(row, column, num_columns, options))
        except (csv.Error, BadRecordError) as error:
            bad = _describe_error(error, place, options)
            if column is None:
                raise DataError(f"{place}: {bad.reason}") from error
            rows.reject(bad, byte, place.__str__)
        rows.lines.append(line)
        rows.num_characters += len(rows.texts[-1])
        if rows.num_characters >= BLOCK_CHARACTERS or len(rows.texts) >= BLOCK_CHARACTERS >> 6:
            yield _make_block(rows, source)
            rows = _Rows(options, rows.first_record + len(rows.texts))
    if rows.texts:
        yield _make_block(rows, source)


def _make_block(rows: _Rows, source: Source) -> DocumentBlock:
    return DocumentBlock(
        source,
        rows.texts,
        rows.rejects,
        rows.num_characters,
        lambda index: f"{source.path}:{rows.lines[index]}",
    )


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


def _find_column(names: list[str], options: DocumentOptions, place: str) -> int:
    wanted = options.text_field
    if names.count(wanted) == 1:
        return names.index(wanted)
    if wanted in names:
        raise DataError(f"{place}: {names.count(wanted)} columns named {quote(wanted)}")
    error = missing_field_error("column", wanted, dict.fromkeys(filter(None, names), ""), hint=None)
    raise DataError(f"{place}: {error.reason}", hint=error.hint)


def _read_text(row: list[str], column: int, num_columns: int, options: DocumentOptions) -> str:
    if not row:
        return ""  # a blank line
    if len(row) != num_columns:
        raise BadRecordError(f"{len(row)} fields, expected {num_columns} as in the first row")
    text = row[column]
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        found = ord(text[error.start]) & 0xFF  # surrogateescape keeps the byte there
        raise BadEncodingError(found, 0) from error
    if num_bytes > options.max_document_bytes:
        raise csv.Error("field larger than field limit")
    return text


def _describe_error(
    error: csv.Error | BadRecordError, place: str, options: DocumentOptions
) -> BadRecordError:
    if isinstance(error, BadRecordError):
        return error
    if "field limit" in str(error):
        raise oversized_error(place, options.max_document_bytes) from error
    return BadRecordError(f"not CSV ({error})")
