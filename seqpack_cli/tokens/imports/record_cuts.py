"""Cut files of records where the number of the document changes, so that no document is divided.

Also what a table says of documents without a record: `seqpack export` notes in its metadata which
documents it holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from seqpack_cli.corpus.fields import BadRecordError, decode
from seqpack_cli.corpus.json_records import check_object, find_optional, parse_json
from seqpack_cli.corpus.parts import cut_source, find_record_start
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.streams import find_line_number
from seqpack_cli.corpus.table_records import find_row_groups, iter_table_arrays, read_schema
from seqpack_cli.errors import DataError, quote
from seqpack_cli.tokens.imports.number_lists import LARGEST
from seqpack_cli.tokens.options import ImportOptions

MARK = b"seqpack.export"  # in the metadata of a file: JSON, of which "documents" is [first, end]
SORT_HINT = "sort the records by this field, or omit --document-field"


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
    if source_range.start:
        first = _find_number(source, source_range.start, first, field)
    if source_range.end < source.num_bytes:
        end = _find_number(source, source_range.end, end, field)
    return Span(first, end)


def _find_number(source: Source, start: int, default: int, field: str) -> int:
    """Return the number of the first document from a row group on; the default if it has none."""
    found = _find_first(source, (start, source.num_bytes), field)
    return default if found is None or found.number is None else found.number


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
    """Return ranges of whole row groups; two that share a document are one range.

    A number that cannot be read ends a range: who reads it says what is wrong.
    """
    first, *others = cut_source(source, room, part_bytes)
    field = options.document_field
    if field is None:
        return [first, *others]
    ranges, groups = [first], find_row_groups(source)
    for start, end in others:
        inside = [group for group in groups if ranges[-1][0] <= group <= start]
        before = _find_last(source, inside, field)
        after = _find_first(source, (start, source.num_bytes), field)
        if before is None or after is None or _are_joined(before, after, source):
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    return ranges


class _Row(NamedTuple):
    """A row of a table with the number of its document."""

    row: int  # from 1
    value: Any

    @property
    def number(self) -> int | None:
        """The number; None if it cannot be one."""
        return self.value if is_document_number(self.value) else None


def _are_joined(before: _Row, after: _Row, source: Source) -> bool:
    """Return whether rows that follow each other are of one document."""
    if before.number is None or after.number is None:
        return False
    if after.number < before.number:
        raise falling_error(f"{source.path}:{after.row}", after.number, before.number)
    return after.number == before.number


def _find_first(source: Source, bounds: tuple[int, int], field: str) -> _Row | None:
    """Return the first row of the row groups in a range, None if they have none."""
    found = iter_table_arrays(SourceRange(0, source, *bounds), lambda _: [field], None)
    num_before, arrays = next(found, (0, []))
    return _Row(num_before + 1, arrays[0][0].as_py()) if arrays else None


def _find_last(source: Source, groups: Sequence[int], field: str) -> _Row | None:
    """Return the last row of row groups, None if they have none.

    Args:
        groups: where each begins, and the end of the last one.
    """
    for start, end in reversed(list(pairwise(groups))):
        last: _Row | None = None
        whole = SourceRange(0, source, start, end)
        for num_before, (array,) in iter_table_arrays(whole, lambda _: [field], None):
            last = _Row(num_before + len(array), array[-1].as_py())
        if last is not None:
            return last
    return None


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
    for place, line in _iter_lines(source, start, options.max_document_bytes + 1):
        if line.strip():
            number = _parse_quickly(line, str(options.document_field))
            if number is None:
                return place
            if before is not None and number < before:
                line_number = find_line_number(source, place)
                raise falling_error(f"{source.path}:{line_number}", number, before)
            if before is not None and number != before:
                return place
            before = number
    return source.num_bytes


def _parse_quickly(line: bytes, field: str) -> int | None:
    """Return the number of the document of a record, None if it cannot be read."""
    try:
        value = orjson.loads(line)
    except (ValueError, RecursionError):
        return parse_number(line, field)
    number = find_optional(value, field) if isinstance(value, dict) else None
    return number if is_document_number(number) else None


def parse_number(record: bytes, field: str) -> int | None:
    """Return the number of the document of a record, None if it cannot be read or is there twice.

    The rest of the record may be bad.
    """
    try:
        value = check_object(parse_json(decode(record, "error")), field)
    except BadRecordError:
        return None
    number = find_optional(value, field)
    return number if is_document_number(number) else None


def is_document_number(value: Any) -> bool:
    """Return whether a value of JSON is the number of a document."""
    return type(value) is int and 0 <= value <= LARGEST


def _iter_lines(source: Source, start: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an uncompressed file from a byte on, each with the byte of its start.

    A line above max_bytes is cut.
    """
    with source.input.open(source.num_bytes) as file:
        file.seek(start)
        while line := file.readline(max_bytes):
            yield start, line
            start += len(line)
