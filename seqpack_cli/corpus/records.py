"""Read the records of a range, for every input format, as the lists that readers make of them.

Each format yields raw records: columns of fields, or the fields of one record. Whole columns are
handed to the readers. Only if that fails are the records of the block read one by one, which is ten
times slower and finds the bad ones. Such a record is an error that names file and line, or, if the
user asks to skip it, is rejected with a reason; it keeps its number, with None in each list.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from seqpack_cli.corpus.fields import (
    FOLDER_FIELD,
    KEEP,
    BadEncodingError,
    BadRecordError,
    Field,
    Reader,
    check_unicode,
    decode,
)
from seqpack_cli.corpus.json_records import JSON_FORMATS, JsonRecords, iter_raw_json
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import Source, SourceRange, check_text
from seqpack_cli.corpus.streams import MARK, OnRead, RawBlock, iter_raw_records
from seqpack_cli.corpus.table_records import (
    ARRAYS,
    CsvRecords,
    TableRecords,
    iter_csv_records,
    iter_table_records,
)
from seqpack_cli.errors import DataError
from seqpack_cli.files.places import URL_PATTERN
from seqpack_cli.limits import LIMITS

NUM_SAMPLES = 1000
NUM_SAMPLE_BYTES = 1 << 20
BAD = (TypeError, ValueError, KeyError, IndexError, AttributeError, BadRecordError)


class Reject(NamedTuple):
    """A record that was rejected."""

    record: int  # from 0, within the range
    byte: int | None  # of the text; None for a row of Parquet or Arrow
    reason: str


class RecordBlock(NamedTuple):
    """Some records of a source, in order."""

    source: Source
    lists: list[list[Any]]  # of all readers; None for a record that is rejected or blank
    rejects: list[Reject]
    num_records: int
    num_bytes: int  # of the text, approximately
    find_place: Callable[[int], str]  # "path:line" of a record


def iter_records(
    source_range: SourceRange,
    readers: Sequence[Reader],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[RecordBlock]:
    """Read the records of a range, block by block.

    Args:
        on_read: called with the bytes of the file as they are read; None if nobody needs them.

    Raises:
        DataError: a record cannot be read and is not to be skipped; the message has path and line.
        MachineError: the package for this format is not installed.
    """
    num_records = 0
    for raw in _iter_raw(source_range, readers, options, on_read):
        yield _read_block(raw, source_range.source, readers, options, num_records)
        num_records += raw.num_records


def read_block_file(
    source_range: SourceRange, readers: Sequence[Reader], options: DocumentOptions
) -> tuple[bytes, RecordBlock] | None:
    """Read a whole file of text or JSON lines at once, if it is one block.

    Returns:
        Its bytes and records, after a check that it has not changed since it was found; None if
        `iter_records` must read it, which also names what is wrong.

    Raises:
        DataError: as `iter_records`.
    """
    _, source, start, end = source_range
    is_whole = start == 0 and end == source.num_bytes
    if not is_whole or not 0 < end <= min(LIMITS.read_bytes, options.max_document_bytes):
        return None
    if source.compression or source.format not in ("text", "jsonl"):
        return None
    if source.document == "paragraph":
        return None
    data = source.input.read_block(end, source.modified)
    if data is None:
        return None
    check_text(data, source)
    records = [data] if source.document == "file" else data.removesuffix(b"\n").split(b"\n")
    block = RawBlock(records, 0, end, b"\r" in data)
    raw = (JsonRecords if source.format == "jsonl" else TextRecords)(
        block, source, list_fields(readers), options
    )
    return data, _read_block(raw, source, readers, options, 0)


def sample_records(
    sources: Sequence[Source],
    readers: Sequence[Reader],
    options: DocumentOptions,
    *,
    limit: int = NUM_SAMPLES,
) -> list[list[Any]]:
    """Return the lists that readers make of the first records.

    These are the first `limit`, or fewer if they are long: after NUM_SAMPLE_BYTES of text no more
    are read unless one of the lists has no value yet.

    Raises:
        DataError: a record cannot be read and is not to be skipped, or a column is missing.
        MachineError: the package for a format is not installed.
    """
    found: list[list[Any]] = [[] for reader in readers for _ in range(reader.num_lists)]
    num_bytes = num_records = 0
    for index, source in enumerate(sources):
        if source.document == "file":  # it need not be read
            blocks = iter([([[find_folder_name(source)] for _ in found], 1, 0)])
        else:
            whole = SourceRange(index, source, 0, source.num_bytes)
            blocks = (
                (block.lists, block.num_records, block.num_bytes)
                for block in iter_records(whole, readers, options, None)
            )
        for lists, count, size in blocks:
            for sample, more in zip(found, lists, strict=True):
                sample += more[: limit - num_records]
            num_records += count
            num_bytes += size
            has_all = all(any(value is not None for value in sample) for sample in found)
            if num_records >= limit or (num_bytes >= NUM_SAMPLE_BYTES and has_all):
                return found
    return found


def list_fields(readers: Sequence[Reader]) -> list[Field]:
    """Return the fields of all readers, one reader after another."""
    return [field for reader in readers for field in reader.fields]


def find_folder_name(source: Source) -> str:
    """Return the name of the folder of a file or object, "" for that of the root.

    >>> from seqpack_cli.corpus.sources import Source
    >>> find_folder_name(Source("s3://bucket/de/a.txt", "text", "file", 0))
    'de'
    """
    path = source.path if URL_PATTERN.fullmatch(source.path) else os.path.abspath(source.path)  # noqa: PTH100
    return path.rpartition("/")[0].rpartition("/")[2]


def _iter_raw(
    source_range: SourceRange,
    readers: Sequence[Reader],
    options: DocumentOptions,
    on_read: OnRead | None,
) -> Iterator[RawRecords]:
    source, fields = source_range.source, list_fields(readers)
    if source.format in ARRAYS:
        yield from iter_table_records(source_range, fields, options, on_read)
    elif source.format == "csv":
        yield from iter_csv_records(source_range, readers, options, on_read)
    elif source.format in JSON_FORMATS:
        for block in iter_raw_json(source_range, options.max_document_bytes, on_read):
            yield JsonRecords(block, source, fields, options)
    else:
        for block in iter_raw_records(source_range, options.max_document_bytes, on_read):
            yield TextRecords(block, source, fields, options)


def _read_block(
    raw: RawRecords,
    source: Source,
    readers: Sequence[Reader],
    options: DocumentOptions,
    num_before: int,
) -> RecordBlock:
    """Read raw records before which a number of records of their range was read."""
    rejects: list[Reject] = []
    try:
        lists = read_lists(raw.read_columns(), readers)
    except BAD:
        lists, rejects = _read_rows(raw, readers, options, num_before)
    return RecordBlock(source, lists, rejects, raw.num_records, raw.num_bytes, raw.find_place)


def read_lists(columns: Sequence[list[Any]], readers: Sequence[Reader]) -> list[list[Any]]:
    """Return the lists that readers make of columns; raises BadRecordError if a record is bad."""
    lists: list[list[Any]] = []
    first = 0
    for reader in readers:
        own = columns[first : first + len(reader.fields)]
        first += len(own)
        try:
            lists += reader.read_all(own)
        except (TypeError, ValueError):
            rows = list(map(reader.read, zip(*own, strict=True)))
            lists += [[row[place] for row in rows] for place in range(reader.num_lists)]
    return lists


def _read_rows(
    raw: RawRecords, readers: Sequence[Reader], options: DocumentOptions, num_before: int
) -> tuple[list[list[Any]], list[Reject]]:
    """Read records one by one."""
    rejects: list[Reject] = []
    nothing = [None for reader in readers for _ in range(reader.num_lists)]
    rows: list[list[Any]] = []
    for index in range(raw.num_records):
        try:
            values, row = raw.read_row(index), nothing
            if values is not None:
                row, first = [], 0
                for reader in readers:
                    row += reader.read(values[first : first + len(reader.fields)])
                    first += len(reader.fields)
        except BadRecordError as error:
            is_encoding = isinstance(error, BadEncodingError)
            policy = options.encoding_errors if is_encoding else options.on_bad_record
            inside = error.byte if isinstance(error, BadEncodingError) else 0
            if policy != "skip":
                place = raw.find_place(index, inside)
                raise DataError(f"{place}: {error.reason}", hint=error.hint) from error
            start = raw.find_byte(index)
            byte = None if start is None else start + inside
            rejects.append(Reject(num_before + index, byte, error.reason))
            row = nothing
        rows.append(row)
    return [[row[place] for row in rows] for place in range(len(nothing))], rejects


class TextRecords:
    """Lines, paragraphs or a whole file; a field to keep is the name of the file's folder."""

    def __init__(
        self, block: RawBlock, source: Source, fields: Sequence[Field], options: DocumentOptions
    ) -> None:
        self.num_records, self.num_bytes = len(block.records), block.num_bytes
        self._block, self._source, self._options = block, source, options
        self._is_folder = [field.option == KEEP for field in fields]
        self.find_place = functools.partial(block.find_place, source)
        self.find_byte = block.find_start

    def read_columns(self) -> list[list[Any]]:
        """Return the texts; raise UnicodeDecodeError if one is not UTF-8."""
        if any(self._is_folder):
            raise ValueError("the one record is the whole file")
        texts = [record.decode() for record in self._block.records]
        if self._block.has_returns:
            texts = list(map(self._strip_returns, texts))
        if texts and self._block.find_start(0) == 0:
            texts[0] = texts[0].removeprefix(MARK.decode())
        return [texts for _ in self._is_folder]

    def read_row(self, index: int) -> list[Any] | None:
        """Return a text, and the name of the folder; raises BadRecordError."""
        text = decode(self._block.records[index], self._options.encoding_errors)
        if index == 0 and self._block.find_start(0) == 0:
            text = text.removeprefix(MARK.decode())
        text = self._strip_returns(text)
        return [self._find_folder() if is_folder else text for is_folder in self._is_folder]

    def _find_folder(self) -> str:
        name = find_folder_name(self._source)
        if not name:
            raise BadRecordError("the file is in no folder, expected one with a name")
        check_unicode(FOLDER_FIELD, name)
        return name

    def _strip_returns(self, text: str) -> str:
        if self._source.document == "file":
            return text
        if self._source.document == "paragraph":
            text = text.replace("\r\n", "\n")
        return text.removesuffix("\r")


# Records of one format before they are read: columns of fields, or the fields of one record.
RawRecords = TextRecords | JsonRecords | TableRecords | CsvRecords
