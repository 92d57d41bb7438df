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
from itertools import chain
from typing import Any, NamedTuple

from seqpack_cli.corpus.fields import (
    FOLDER_FIELD,
    KEEP,
    BadRecordError,
    Field,
    RawRecords,
    Reader,
    ValueReader,
)
from seqpack_cli.corpus.json_records import (
    JSON_FORMATS,
    iter_raw_json,
    make_json_records,
    read_text,
)
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.sources import Source, SourceRange, check_text
from seqpack_cli.corpus.streams import MARK, OnRead, RawBlock, iter_raw_records
from seqpack_cli.corpus.table_records import iter_csv_records, iter_table_records
from seqpack_cli.errors import DataError, quote
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
    source, fields = source_range.source, list_fields(readers)
    found: Iterator[RawRecords]
    if source.format in BLOCKS:
        iter_blocks, make = BLOCKS[source.format]
        blocks = iter_blocks(source_range, options.max_document_bytes, on_read)
        found = (make(block, source, fields, options) for block in blocks)
    else:
        iter_rows = iter_csv_records if source.format == "csv" else iter_table_records
        found = iter_rows(source_range, fields, options, on_read)
    for raw in found:
        yield _read_block(raw, readers, options, num_records)
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
    is_small = 0 < end <= min(LIMITS.read_bytes, options.max_document_bytes)
    is_plain = not source.compression and source.document != "paragraph"
    if not (is_whole and is_small and is_plain and source.format in ("text", "jsonl")):
        return None
    data = source.input.read_block(end, source.modified)
    if data is None:
        return None
    check_text(data, source)
    records = [data] if source.document == "file" else data.removesuffix(b"\n").split(b"\n")
    block = RawBlock(records, 0, end, b"\r" in data)
    raw = BLOCKS[source.format][1](block, source, list_fields(readers), options)
    return data, _read_block(raw, readers, options, 0)


def sample_records(
    sources: Sequence[Source], names: Sequence[str], options: DocumentOptions
) -> list[list[Any]]:
    """Return the values of some fields in the first records.

    These are the first NUM_SAMPLES, or fewer if they are long: after NUM_SAMPLE_BYTES of text no
    more are read unless one of the fields has no value yet.

    Raises:
        DataError: a record cannot be read and is not to be skipped, or a column is missing.
        MachineError: the package for a format is not installed.
    """
    readers, found = list(map(ValueReader, names)), [list[Any]() for _ in names]
    num_bytes = num_records = 0
    for index, source in enumerate(sources if names else ()):
        whole = SourceRange(index, source, 0, source.num_bytes)
        for block in iter_records(whole, readers, options, None):
            for sample, more in zip(found, block.lists, strict=True):
                sample += more[: NUM_SAMPLES - num_records]
            num_records += block.num_records
            num_bytes += block.num_bytes
            has_all = all(any(value is not None for value in sample) for sample in found)
            if num_records >= NUM_SAMPLES or (num_bytes >= NUM_SAMPLE_BYTES and has_all):
                return found
    return found


def list_fields(readers: Sequence[Reader]) -> list[Field]:
    """Return the fields of all readers, one reader after another."""
    return [field for reader in readers for field in reader.fields]


def _read_block(
    raw: RawRecords, readers: Sequence[Reader], options: DocumentOptions, num_before: int
) -> RecordBlock:
    """Read raw records before which a number of records of their range was read."""
    rejects: list[Reject] = []
    try:
        lists = _read_lists(raw.read_columns(), readers)
    except BAD:
        lists, rejects = _read_rows(raw, readers, options, num_before)
    return RecordBlock(lists, rejects, raw.num_records, raw.num_bytes, raw.find_place)


def _deal(values: Sequence[Any], readers: Sequence[Reader]) -> Iterator[tuple[Reader, Any]]:
    """Yield each reader, and the values of its fields."""
    first = 0
    for reader in readers:
        last = first + len(reader.fields)
        yield reader, values[first:last]
        first = last


def _read_lists(columns: Sequence[list[Any]], readers: Sequence[Reader]) -> list[list[Any]]:
    """Return the lists that readers make of columns; raises BadRecordError if a record is bad."""
    lists: list[list[Any]] = []
    for reader, own in _deal(columns, readers):
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
    rows: list[list[Any]] = []
    for index in range(raw.num_records):
        row: list[Any] = [None] * sum(reader.num_lists for reader in readers)
        try:
            values = raw.read_row(index)
            if values is not None:
                found = [reader.read(own) for reader, own in _deal(values, readers)]
                row = list(chain.from_iterable(found))
        except BadRecordError as error:
            if getattr(options, error.policy) != "skip":
                place = raw.find_place(index, error.byte)
                raise DataError(f"{place}: {error.reason}", hint=error.hint) from error
            start = raw.find_byte(index)
            byte = None if start is None else start + error.byte
            rejects.append(Reject(num_before + index, byte, error.reason))
        rows.append(row)
    return list(map(list, zip(*rows, strict=True))), rejects


def make_text_records(
    block: RawBlock, source: Source, fields: Sequence[Field], options: DocumentOptions
) -> RawRecords:
    """Return the texts of a block; a field to keep is the name of the file's folder."""
    is_folder = [field.option == KEEP for field in fields]

    def strip_returns(text: str) -> str:
        if source.document == "file":
            return text
        if source.document == "paragraph":
            text = text.replace("\r\n", "\n")
        return text.removesuffix("\r")

    def read_columns() -> list[list[Any]]:
        if any(is_folder):
            raise ValueError("the one record is the whole file")
        texts = [record.decode() for record in block.records]
        if block.has_returns:
            texts = list(map(strip_returns, texts))
        if texts and block.find_start(0) == 0:
            texts[0] = texts[0].removeprefix(MARK.decode())
        return [texts for _ in fields]

    def read_row(index: int) -> list[Any]:
        text = strip_returns(read_text(block, index, options))
        return [_find_folder(source) if is_kept else text for is_kept in is_folder]

    return RawRecords(
        len(block.records),
        block.num_bytes,
        read_columns,
        read_row,
        functools.partial(block.find_place, source),
        block.find_start,
    )


def _find_folder(source: Source) -> str:
    """Return the name of the folder of a file or object; raises BadRecordError if it has none."""
    path = source.path if URL_PATTERN.fullmatch(source.path) else os.path.abspath(source.path)  # noqa: PTH100
    name = path.rpartition("/")[0].rpartition("/")[2]
    if not name:
        raise BadRecordError("the file is in no folder, expected one with a name")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        reason = f"field {FOLDER_FIELD!r} is {quote(name)}, expected Unicode text"
        raise BadRecordError(reason) from error
    return name


# How blocks of these formats are read, and records made of them.
BLOCKS = {
    "text": (iter_raw_records, make_text_records),
    **dict.fromkeys(JSON_FORMATS, (iter_raw_json, make_json_records)),
}
