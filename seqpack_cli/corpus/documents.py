"""Read the records of a range as documents, for every input format.

Text and JSON lines are read here, a block of records at a time. Only if that fails are the records
of the block read one by one, which is ten times slower and finds the bad one.
"""

from __future__ import annotations

import functools
import json
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
from seqpack_cli.corpus.json_lines import read_json_text, read_json_texts
from seqpack_cli.corpus.parquet_rows import iter_parquet_documents
from seqpack_cli.corpus.records import RecordBlock, iter_records
from seqpack_cli.corpus.sources import Source, SourceRange


def iter_documents(
    source_range: SourceRange,
    options: DocumentOptions,
    on_read: OnRead,
    readers: Any = (),
) -> Iterator[DocumentBlock]:
    """Read the documents of a range, block by block.

    Args:
        on_read: called with the bytes of the file as they are read.

    Raises:
        DataError: a record cannot be read and is not to be skipped; the message has path and line.
        MachineError: the package for this format is not installed.
    """
    if source_range.source.format == "parquet":
        return iter_parquet_documents(source_range, options, on_read)
    if source_range.source.format == "csv":
        return iter_csv_documents(source_range, options, on_read)
    return _iter_line_documents(source_range, options, on_read, readers)


def _iter_line_documents(
    source_range: SourceRange, options: DocumentOptions, on_read: OnRead, readers: Any
) -> Iterator[DocumentBlock]:
    source = source_range.source
    num_records = 0
    for block in iter_records(
        source_range, max_document_bytes=options.max_document_bytes, on_read=on_read
    ):
        found = Texts(options, num_records, _read_all(block, source, options) or [])
        if len(found.texts) < len(block.records):
            _read_each(block, source, found)
        find_place = functools.partial(_find_place, source, block)
        rows = (
            [json.loads(record) if record.strip() else {} for record in block.records]
            if readers
            else []
        )
        fields = [
            [
                r.read(functools.reduce(lambda v, k: v[k], r.name.split("."), row), "")
                if row
                else None
                for row in rows
            ]
            for r in readers
        ]
        yield DocumentBlock(source, found.texts, found.rejects, block.num_bytes, find_place, fields)
        num_records += len(block.records)


def _find_place(source: Source, block: RecordBlock, index: int) -> str:
    return _find_line(source, block.find_start(index))


def _read_all(block: RecordBlock, source: Source, options: DocumentOptions) -> list[str] | None:
    """Read a block as a whole; return None if its records must be read one by one."""
    if source.format == "jsonl":
        return read_json_texts(block.records, options.text_field)
    try:
        texts = [record.decode() for record in block.records]
    except UnicodeDecodeError:
        return None
    if block.has_returns:
        texts = [_strip_returns(text, source) for text in texts]
    if texts and block.find_start(0) == 0:
        texts[0] = texts[0].removeprefix(BYTE_ORDER_MARK)
    return texts


def _read_each(block: RecordBlock, source: Source, found: Texts) -> None:
    """Read a block record by record."""
    for index, record in enumerate(block.records):
        is_first = index == 0 and block.find_start(0) == 0
        try:
            found.texts.append(_read_text(record, source, found.options, is_first=is_first))
        except BadRecordError as error:
            inside = error.byte if isinstance(error, BadEncodingError) else 0
            byte = block.find_start(index) + inside
            found.reject(error, byte, functools.partial(_find_line, source, byte))


def _find_line(source: Source, byte: int) -> str:
    return f"{source.path}:{find_line_number(source, byte)}"


def _read_text(record: bytes, source: Source, options: DocumentOptions, *, is_first: bool) -> str:
    if source.format == "jsonl" and (texts := read_json_texts([record], options.text_field)):
        return texts[0]
    text = decode(record, options.encoding_errors)
    if is_first:
        text = text.removeprefix(BYTE_ORDER_MARK)
    text = _strip_returns(text, source)
    if source.format == "text":
        return text
    return read_json_text(text, options.text_field) if text.strip() else ""


def _strip_returns(text: str, source: Source) -> str:
    if source.document == "file":
        return text
    if source.document == "paragraph":
        text = text.replace("\r\n", "\n")
    return text.removesuffix("\r")
