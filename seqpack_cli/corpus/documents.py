"""Read the records of a range as documents, for every input format, and the fields to keep.

Text and JSON are read here, a block of records at a time. Only if that fails are the records
of the block read one by one, which is ten times slower and finds the bad one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from seqpack_cli.corpus.blocks import OnRead, find_line_number
from seqpack_cli.corpus.csv_rows import iter_csv_documents
from seqpack_cli.corpus.document_block import (
    BYTE_ORDER_MARK,
    BadEncodingError,
    BadRecordError,
    DocumentBlock,
    NotJsonError,
    Reject,
    Texts,
    decode,
)
from seqpack_cli.corpus.file_kinds import check_text
from seqpack_cli.corpus.json_array import iter_json_records
from seqpack_cli.corpus.json_fields import read_json_record, read_json_records
from seqpack_cli.corpus.json_lines import read_json_text, read_json_texts
from seqpack_cli.corpus.kept_fields import Readers, read_folder, takes_words
from seqpack_cli.corpus.options import DocumentOptions
from seqpack_cli.corpus.records import RecordBlock, iter_records, split_whole
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.corpus.table_rows import FORMATS as TABLE_FORMATS
from seqpack_cli.corpus.table_rows import iter_table_documents
from seqpack_cli.corpus.text_reader import FieldText, Made, TextReader
from seqpack_cli.errors import DataError
from seqpack_cli.limits import LIMITS

JSON_FORMATS = ("jsonl", "json")
BLOCK_FORMATS = ("text", "jsonl")
# Where the next element begins is not known for certain, so that skipping one could lose others.
ARRAY_HINT = "correct the file, or write its records as JSON lines"


def iter_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers = (),
    text: TextReader | None = None,
) -> Iterator[DocumentBlock]:
    """Read the documents of a range, block by block.

    Args:
        on_read: called with the bytes of the file as they are read.
        readers: of the fields to keep beside the texts.
        text: makes the texts from the fields of records; None takes that of the options.

    Raises:
        DataError: a record cannot be read and is not to be skipped; the message has path and line.
        MachineError: the package for this format is not installed.
    """
    text = text or make_text(options, readers)
    if source_range.source.format in TABLE_FORMATS:
        return iter_table_documents(source_range, options, on_read, readers, text)
    if source_range.source.format == "csv":
        return iter_csv_documents(source_range, options, on_read, readers, text)
    return _iter_line_documents(source_range, options, on_read, readers, text)


def make_text(options: DocumentOptions, readers: Readers) -> TextReader:
    """Return what makes a text that is one field."""
    return FieldText(options.text_field, takes_words(readers))


def read_block_file(
    source_range: SourceRange, options: DocumentOptions, readers: Readers, text: TextReader
) -> tuple[bytes, DocumentBlock] | None:
    """Read a whole file of text or JSON lines at once, if it is one block.

    Args:
        text: makes the texts from the fields of records.

    Returns:
        Its bytes and documents, after a check that it has not changed since it was found; None if
        `iter_documents` must read it, which also names what is wrong.

    Raises:
        DataError: as `iter_documents`.
    """
    _, source, start, end = source_range
    is_whole = start == 0 and end == source.num_bytes
    if not is_whole or not 0 < end <= min(LIMITS.read_bytes, options.max_document_bytes):
        return None
    if source.compression or source.format not in BLOCK_FORMATS or source.document == "paragraph":
        return None
    data = source.input.read_block(end, source.modified)
    if data is None:
        return None
    check_text(data, source)
    records = RecordBlock(split_whole(data, source.document), 0, end, b"\r" in data)
    return data, _read_block(records, source, 0, options, readers, text)


def _iter_line_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers,
    text: TextReader,
) -> Iterator[DocumentBlock]:
    num_records = 0
    limit = options.max_document_bytes
    for block in iter_record_blocks(source_range, max_document_bytes=limit, on_read=on_read):
        yield _read_block(block, source_range.source, num_records, options, readers, text)
        num_records += len(block.records)


def _read_block(
    block: RecordBlock,
    source: Source,
    num_before: int,
    options: DocumentOptions,
    readers: Readers,
    text: TextReader,
) -> DocumentBlock:
    """Read the documents of a block before which a number of records of its range was read."""
    rejects: list[Reject] = []
    quick = _read_all(block, source, text, readers)
    if quick is None:
        num_lists = text.num_values + len(readers)
        found = Texts(options, num_before, fields=[[] for _ in range(num_lists)])
        _read_each(block, source, found, text, readers)
        quick, rejects = (found.texts, found.fields), found.rejects
    find_place = functools.partial(_find_place, source, block)
    return DocumentBlock(source, quick[0], rejects, block.num_bytes, find_place, quick[1])


def iter_record_blocks(
    source_range: SourceRange, *, max_document_bytes: int, on_read: OnRead
) -> Iterator[RecordBlock]:
    """Read the raw records of a range of text or JSON; see `iter_records`."""
    read = iter_json_records if source_range.source.format == "json" else iter_records
    return read(source_range, max_document_bytes=max_document_bytes, on_read=on_read)


def _find_place(source: Source, block: RecordBlock, index: int) -> str:
    return find_record(source, block, index, block.find_start(index))


def _read_all(
    block: RecordBlock, source: Source, text: TextReader, readers: Readers
) -> Made | None:
    """Read a block as a whole; return None if its records must be read one by one."""
    if source.format in JSON_FORMATS:
        return _read_json(block.records, text, readers)
    if readers:
        return None  # the one record is the whole file
    try:
        texts = [record.decode() for record in block.records]
    except UnicodeDecodeError:
        return None
    if block.has_returns:
        texts = [_strip_returns(text, source) for text in texts]
    if texts and block.find_start(0) == 0:
        texts[0] = texts[0].removeprefix(BYTE_ORDER_MARK)
    return texts, []


def _read_json(records: list[bytes], text: TextReader, readers: Readers) -> Made | None:
    if readers or not isinstance(text, FieldText):
        return read_json_records(records, text, readers)
    texts = read_json_texts(records, text.name)
    return None if texts is None else (texts, [])


def _read_each(
    block: RecordBlock, source: Source, found: Texts, text: TextReader, readers: Readers
) -> None:
    """Read a block record by record."""
    for index, record in enumerate(block.records):
        is_first = index == 0 and block.find_start(0) == 0
        try:
            if source.format in JSON_FORMATS and (quick := _read_json([record], text, readers)):
                found.add(quick[0][0], [values[0] for values in quick[1]])
                continue
            record = record.strip() if block.is_array else record
            if block.is_array and not record:
                raise NotJsonError("nothing between commas, expected an object")
            line = decode(record, found.options.encoding_errors)
            line = line.removeprefix(BYTE_ORDER_MARK) if is_first else line
            found.add(*_read_record(_strip_returns(line, source), source, text, readers))
        except BadRecordError as error:
            inside = error.byte if isinstance(error, BadEncodingError) else 0
            byte = block.find_start(index) + inside
            find_place = functools.partial(find_record, source, block, index, byte)
            if block.is_array and isinstance(error, NotJsonError):  # whatever the options say
                raise DataError(f"{find_place()}: {error.reason}", hint=ARRAY_HINT) from error
            found.reject(error, byte, find_place)


def find_record(source: Source, block: RecordBlock, index: int, byte: int) -> str:
    """Return "path:line" of a byte of a record, with the number of an element of an array."""
    place = f"{source.path}:{find_line_number(source, byte)}"
    return place if block.num_before is None else f"{place}: record {block.num_before + index + 1}"


def _read_record(
    record: str, source: Source, text: TextReader, readers: Readers
) -> tuple[str, list[Any]]:
    """Return the text of a record, and what stands beside it."""
    if source.format == "text":
        return record, [read_folder(reader, source, record) for reader in readers]
    if not record.strip():
        return "", [None] * (text.num_values + len(readers))
    if readers or not isinstance(text, FieldText):
        return read_json_record(record, text, readers)
    return read_json_text(record, text.name), []


def _strip_returns(text: str, source: Source) -> str:
    if source.document == "file":
        return text
    if source.document == "paragraph":
        text = text.replace("\r\n", "\n")
    return text.removesuffix("\r")
