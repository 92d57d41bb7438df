"""Cut files of records where the number of the document changes, so that no document is divided.

Also what a table says of documents without a record: `seqpack export` notes in its metadata which
documents it holds.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

from seqpack_cli.corpus.blocks import find_line_number
from seqpack_cli.corpus.json_fields import find_optional
from seqpack_cli.corpus.json_lines import find_parser
from seqpack_cli.corpus.parquet_rows import find_row_groups
from seqpack_cli.corpus.parts import cut_source, find_record_start, iter_lines
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.table_rows import check_row_ratio, iter_table_arrays, read_schema
from seqpack_cli.errors import DataError, quote
from seqpack_cli.tokens.imports.import_options import ImportOptions

MARK = b"seqpack.export"  # in the metadata of a file: JSON, of which "documents" is [first, end]
SORT_HINT = "sort the records by this field, or omit --document-field"
EMPTY_BYTES = 16  # that a document without a record takes


class Span(NamedTuple):
    """The numbers of the documents of a range, also of those that have no record."""

    first: int
    end: int  # the one after the last


def falling_error(place: str, number: int, before: int) -> DataError:
    """Return the error about the number of a document that is less than the one before."""
    what = f"document {number} follows document {before}"
    return DataError(f"{place}: {what}, expected numbers that do not fall within a file", SORT_HINT)


def find_span(source_range: SourceRange, field: str) -> Span | None:
    """Return the documents of a range of a table; None if the table does not say it.

    A range goes on up to the first document of the next one.
    """
    source = source_range.source
    mark = (read_schema(source).metadata or {}).get(MARK)
    documents = _read_mark(mark, source).get("documents") if mark is not None else None
    if documents is None:
        return None
    first, end = documents
    check_row_ratio(source, 0, EMPTY_BYTES * (end - first))
    if source_range.start:
        first = _read_number(source_range, 0, field)
    if source_range.end < source.num_bytes:
        after = source_range._replace(start=source_range.end, end=source.num_bytes)
        end = _read_number(after, 0, field)
    return Span(first, end)


def _read_mark(mark: bytes, source: Source) -> dict[str, Any]:
    """Return what `seqpack export` says of a file."""
    try:
        found = json.loads(mark)
        documents = found.get("documents")
        first, end = (0, 0) if documents is None else documents
        if type(first) is int and type(end) is int and 0 <= first <= end:
            return dict(found)
    except (ValueError, TypeError, AttributeError):
        pass
    expected = "expected documents as [first, end]"
    raise DataError(f"{source.path}: {MARK.decode()} in its metadata is {quote(mark)}, {expected}")


def cut_parquet(
    options: ImportOptions, source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return ranges of whole row groups; two that share a document are one range."""
    first, *others = cut_source(source, room, part_bytes)
    field = options.document_field
    if field is None:
        return [first, *others]
    group_before = {end: start for start, end in pairwise(find_row_groups(source))}
    ranges = [first]
    for start, end in others:
        before = _read_number(SourceRange(0, source, group_before[start], start), -1, field)
        number = _read_number(SourceRange(0, source, start, source.num_bytes), 0, field)
        if number < before:
            raise falling_error(source.path, number, before)
        if number == before:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    return ranges


def _read_number(source_range: SourceRange, row: int, field: str) -> int:
    """Return the number of the document of the first (0) or last row (-1) of a range."""
    source, value = source_range.source, None
    for _, (array,) in iter_table_arrays(source_range, lambda _: [field], None):
        value = array[row].as_py()
        if row == 0:
            break
    if value is None:
        raise DataError(f"{source.path}: column {quote(field)} is null, expected a whole number")
    return int(value)


def cut_lines(
    options: ImportOptions, source: Source, room: int, part_bytes: int
) -> list[tuple[int, int]]:
    """Return ranges that begin with another document than the one before."""
    if options.document_field is None or not source.is_cut_anywhere:
        return cut_source(source, room, part_bytes)
    ends: list[int] = []
    target = room if room > 0 else part_bytes
    while target < source.num_bytes:
        ends.append(_find_document_start(source, find_record_start(source, target), options))
        target = ends[-1] + part_bytes
    if not ends or ends[-1] < source.num_bytes:
        ends.append(source.num_bytes)
    return list(zip([0, *ends], ends, strict=False))


def _find_document_start(source: Source, start: int, options: ImportOptions) -> int:
    """Return where a document begins after the one of the line at a byte.

    A line that cannot be read begins a range: who reads that says what is wrong.
    """
    before: int | None = None
    for place, line in iter_lines(source, start, options.max_document_bytes + 1):
        if line.strip():
            number = _parse_number(line, str(options.document_field))
            if number is None:
                return place
            if before is not None and number < before:
                line_number = find_line_number(source, place)
                raise falling_error(f"{source.path}:{line_number}", number, before)
            if before is not None and number != before:
                return place
            before = number
    return source.num_bytes


def _parse_number(line: bytes, field: str) -> int | None:
    """Return the number of the document of a record, None if it cannot be read."""
    try:
        number = find_optional(find_parser().loads(line), field)
    except (ValueError, TypeError, RecursionError):
        return None
    return number if type(number) is int else None
