"""Read the records of a range as documents, for every input format, and the fields to keep.

Text and JSON lines are read here, a block of records at a time. Only if that fails are the records
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
    DocumentOptions,
    Texts,
    decode,
)
from seqpack_cli.corpus.json_fields import read_json_record, read_json_records
from seqpack_cli.corpus.json_lines import read_json_text, read_json_texts
from seqpack_cli.corpus.kept_fields import Readers, read_folder
from seqpack_cli.corpus.parquet_rows import iter_parquet_documents
from seqpack_cli.corpus.records import RecordBlock, iter_records
from seqpack_cli.corpus.sources import Source, SourceRange


def iter_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Readers = (),
) -> Iterator[DocumentBlock]:
    """Read the documents of a range, block by block.

    Args:
        on_read: called with the bytes of the file as they are read.
        readers: of the fields to keep beside the texts.

    Raises:
        DataError: a record cannot be read and is not to be skipped; the message has path and line.
        MachineError: the package for this format is not installed.
    """
    if source_range.source.format == "parquet":
        return iter_parquet_documents(source_range, options, on_read, readers)
    if source_range.source.format == "csv":
        return iter_csv_documents(source_range, options, on_read, readers)
    return _iter_line_documents(source_range, options, on_read, readers)


def _iter_line_documents(
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead, readers: Readers
) -> Iterator[DocumentBlock]:
    source = source_range.source
    num_records = 0
    for block in iter_records(
        source_range, max_document_bytes=options.max_document_bytes, on_read=on_read
    ):
        found = Texts(options, num_records, fields=[[] for _ in readers])
        quick = _read_all(block, source, options, readers)
        if quick is None:
            _read_each(block, source, found, readers)
        else:
            found.texts, found.fields = quick
        yield DocumentBlock(
            source,
            found.texts,
            found.rejects,
            block.num_bytes,
            functools.partial(_find_place, source, block),
            found.fields,
        )
        num_records += len(block.records)


def _find_place(source: Source, block: RecordBlock, index: int) -> str:
    return _find_line(source, block.find_start(index))


def _read_all(
    block: RecordBlock, source: Source, options: DocumentOptions, readers: Readers
) -> tuple[list[str], list[list[Any]]] | None:
    """Read a block as a whole; return None if its records must be read one by one."""
    if source.format == "jsonl":
        return _read_json(block.records, options, readers)
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


def _read_json(
    records: list[bytes], options: DocumentOptions, readers: Readers
) -> tuple[list[str], list[list[Any]]] | None:
    if readers:
        return read_json_records(records, options.text_field, readers)
    texts = read_json_texts(records, options.text_field)
    return None if texts is None else (texts, [])


def _read_each(block: RecordBlock, source: Source, found: Texts, readers: Readers) -> None:
    """Read a block record by record."""
    for index, record in enumerate(block.records):
        is_first = index == 0 and block.find_start(0) == 0
        try:
            found.add(*_read_record(record, source, found.options, readers, is_first=is_first))
        except BadRecordError as error:
            inside = error.byte if isinstance(error, BadEncodingError) else 0
            byte = block.find_start(index) + inside
            found.reject(error, byte, functools.partial(_find_line, source, byte))


def _find_line(source: Source, byte: int) -> str:
    return f"{source.path}:{find_line_number(source, byte)}"


def _read_record(
    record: bytes, source: Source, options: DocumentOptions, readers: Readers, *, is_first: bool
) -> tuple[str, list[Any]]:
    """Return the text of a record and the values of its kept fields."""
    if source.format == "jsonl" and (quick := _read_json([record], options, readers)):
        return quick[0][0], [values[0] for values in quick[1]]
    text = decode(record, options.encoding_errors)
    if is_first:
        text = text.removeprefix(BYTE_ORDER_MARK)
    text = _strip_returns(text, source)
    if source.format == "text":
        return text, [read_folder(reader, source, text) for reader in readers]
    if not text.strip():
        return "", [None] * len(readers)
    if readers:
        return read_json_record(text, options.text_field, readers)
    return read_json_text(text, options.text_field), []


def _strip_returns(text: str, source: Source) -> str:
    if source.document == "file":
        return text
    if source.document == "paragraph":
        text = text.replace("\r\n", "\n")
    return text.removesuffix("\r")
