"""A range of a file -> raw records: lines, paragraphs, or the whole file.

Lines end at \\n alone: U+2028, \\x0b or \\x85 inside a text never cut it. Blocks of 1 MiB are read
and split at once, so no more than a block and one record is in memory, and a record above the
limit is refused while it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from seqpack_cli.corpus.sources import SourceRange, find_line_number
from seqpack_cli.errors import DataError, quote

BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class RecordBlock(NamedTuple):
    """Some records of a source, in order."""

    records: list[bytes]  # without the line end; a \\r before it stays
    starts: list[int]  # byte of the source at which each begins
    end: int  # byte of the source up to which the block was read


def iter_records(
    source_range: SourceRange, *, max_document_bytes: int, digest: hashlib._Hash
) -> Iterator[RecordBlock]:
    """Read the records of a range, block by block, and hash what is read.

    Raises:
        DataError: the file is UTF-16, ends early, or a record is larger than max_document_bytes.
    """
    path = source_range.source.path
    try:
        with Path(path).open("rb") as file:
            file.seek(source_range.start)
            blocks = _read_blocks(file, source_range, digest)
            if source_range.source.document == "file":
                yield _read_whole(blocks, source_range, max_document_bytes)
            elif source_range.source.document == "paragraph":
                lines = _split_lines(blocks, source_range, max_document_bytes)
                yield from _join_paragraphs(lines, source_range, max_document_bytes)
            else:
                yield from _split_lines(blocks, source_range, max_document_bytes)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _read_blocks(
    file: BinaryIO, source_range: SourceRange, digest: hashlib._Hash
) -> Iterator[bytes]:
    left = source_range.end - source_range.start
    first = source_range.start == 0
    while left > 0:
        block = file.read(min(BLOCK_BYTES, left))
        if not block:
            path = source_range.source.path
            raise DataError(f"{path}: ends {left:,} bytes early, it changed while it was read")
        digest.update(block)
        left -= len(block)
        if first:
            first = False
            _check_encoding(block, source_range.source.path)
        yield block


def _check_encoding(block: bytes, path: str) -> None:
    if block.startswith(UTF16_MARKS):
        raise DataError(
            f"{path}:1: UTF-16 (begins with {quote(block[:2])}), expected UTF-8",
            hint=f"iconv -f UTF-16 -t UTF-8 {path} > {Path(path).stem}.utf8{Path(path).suffix}",
        )


def _split_lines(
    blocks: Iterator[bytes], source_range: SourceRange, max_document_bytes: int
) -> Iterator[RecordBlock]:
    start = source_range.start
    rest: list[bytes] = []  # the pieces of a line whose end is not read yet
    num_rest = 0
    for block in blocks:
        lines = block.split(b"\n")
        if len(lines) == 1:
            rest.append(block)
            num_rest += len(block)
            _check_size(num_rest, start, source_range, max_document_bytes)
            continue
        lines[0] = b"".join([*rest, lines[0]])
        rest = [lines.pop()]
        num_rest = len(rest[0])
        starts = list(accumulate((len(line) + 1 for line in lines), initial=start))
        start = starts.pop()
        yield _check_sizes(RecordBlock(lines, starts, start), source_range, max_document_bytes)
    if num_rest:
        last = RecordBlock([b"".join(rest)], [start], source_range.end)
        yield _check_sizes(last, source_range, max_document_bytes)


def _join_paragraphs(
    line_blocks: Iterator[RecordBlock], source_range: SourceRange, max_document_bytes: int
) -> Iterator[RecordBlock]:
    lines: list[bytes] = []
    start = 0
    for block in line_blocks:
        records: list[bytes] = []
        starts: list[int] = []
        for line, line_start in zip(block.records, block.starts, strict=True):
            if _is_blank(line, line_start):
                if lines:
                    records.append(b"\n".join(lines))
                    starts.append(start)
                    lines = []
                continue
            start = line_start if not lines else start
            lines.append(line)
            num_bytes = line_start + len(line) - start
            _check_size(num_bytes, start, source_range, max_document_bytes)
        yield RecordBlock(records, starts, block.end)
    if lines:
        yield RecordBlock([b"\n".join(lines)], [start], source_range.end)


def _is_blank(line: bytes, start: int) -> bool:
    return not (line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line).strip()


def _read_whole(
    blocks: Iterator[bytes], source_range: SourceRange, max_document_bytes: int
) -> RecordBlock:
    _check_size(source_range.source.num_bytes, 0, source_range, max_document_bytes)
    return RecordBlock([b"".join(blocks)], [0], source_range.end)


def _check_sizes(block: RecordBlock, source_range: SourceRange, limit: int) -> RecordBlock:
    for record, start in zip(block.records, block.starts, strict=True):
        if len(record) > limit:
            _check_size(len(record), start, source_range, limit)
    return block


def _check_size(num_bytes: int, start: int, source_range: SourceRange, limit: int) -> None:
    if num_bytes > limit:
        path = source_range.source.path
        raise DataError(
            f"{path}:{find_line_number(path, start)}: a document of more than {limit:,} bytes",
            hint="pass --max-document-bytes with a larger size, or split the document",
        )
