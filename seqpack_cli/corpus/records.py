"""Read the raw records of a range: lines, paragraphs, or the whole file.

Lines end only at \\n: U+2028, \\x0b or \\x85 inside a text do not cut it. At most a block of 1 MiB
and one record are in memory, and a record above the limit is refused while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from seqpack_cli.corpus.blocks import OnRead, find_line_number, iter_blocks
from seqpack_cli.corpus.document_block import BYTE_ORDER_MARK, oversized_error
from seqpack_cli.corpus.sources import SourceRange

MARK = BYTE_ORDER_MARK.encode()


class RecordBlock(NamedTuple):
    """Some records of a source, in order."""

    records: list[bytes]  # without the line end; a \\r before it stays
    start: int  # byte of the text at which the first record begins
    num_bytes: int  # of the text, line ends and blank lines included
    has_returns: bool  # it contains a \\r
    starts: list[int] | None = None  # where each begins, unless they follow each other line by line
    num_before: int | None = None  # the number of records before it, of an array

    @property
    def is_array(self) -> bool:
        """Return whether the records are elements of a JSON array."""
        return self.num_before is not None

    def find_start(self, index: int) -> int:
        """Return the byte of the text at which a record begins."""
        if self.starts is not None:
            record = self.records[index]
            num_spaces = len(record) - len(record.lstrip()) if self.is_array else 0
            return self.starts[index] + num_spaces
        return self.start + sum(len(record) + 1 for record in self.records[:index])


def iter_records(
    source_range: SourceRange, *, max_document_bytes: int, on_read: OnRead
) -> Iterator[RecordBlock]:
    """Read the records of a range, block by block.

    Args:
        on_read: called with the bytes of the file as they are read.

    Raises:
        DataError: the file is not of its format, or a record is larger than
            max_document_bytes.
    """
    blocks = iter_blocks(source_range, on_read)
    if source_range.source.document == "file":
        yield _read_whole(blocks, source_range, max_document_bytes)
    elif source_range.source.document == "paragraph":
        lines = split_lines(blocks, source_range, max_document_bytes)
        yield from _join_paragraphs(lines, source_range, max_document_bytes)
    else:
        yield from split_lines(blocks, source_range, max_document_bytes)


def split_lines(
    blocks: Iterator[bytes], source_range: SourceRange, max_document_bytes: int
) -> Iterator[RecordBlock]:
    """Split blocks at \\n; a line may span blocks."""
    start = source_range.start
    rest: list[bytes] = []  # the pieces of a line whose end is not read yet
    num_rest = 0
    for block in blocks:
        lines = block.split(b"\n")
        last = lines.pop()
        if not lines:
            rest.append(last)
            num_rest += len(last)
            check_size(num_rest, start, source_range, max_document_bytes)
            continue
        has_returns = b"\r" in block
        if rest:
            lines[0] = b"".join([*rest, lines[0]])
            has_returns = has_returns or b"\r" in lines[0]
        num_bytes = num_rest + len(block) - len(last)
        found = RecordBlock(lines, start, num_bytes, has_returns)
        if num_bytes > max_document_bytes:
            _check_sizes(found, source_range, max_document_bytes)
        yield found
        start += num_bytes
        rest, num_rest = [last] if last else [], len(last)
    if num_rest:
        line = b"".join(rest)
        check_size(num_rest, start, source_range, max_document_bytes)
        yield RecordBlock([line], start, num_rest, b"\r" in line)


def split_whole(data: bytes, document: str) -> list[bytes]:
    """Return the records of a whole text whose documents are lines or the file."""
    if document == "file":
        return [data]
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _join_paragraphs(
    line_blocks: Iterator[RecordBlock], source_range: SourceRange, max_document_bytes: int
) -> Iterator[RecordBlock]:
    lines: list[bytes] = []
    start = 0
    for block in line_blocks:
        records: list[bytes] = []
        starts: list[int] = []
        line_start = block.start
        for line in block.records:
            if _is_blank(line, line_start):
                if lines:
                    records.append(b"\n".join(lines))
                    starts.append(start)
                    lines = []
            else:
                start = line_start if not lines else start
                lines.append(line)
                num_bytes = line_start + len(line) - start
                check_size(num_bytes, start, source_range, max_document_bytes)
            line_start += len(line) + 1
        yield RecordBlock(records, block.start, block.num_bytes, True, starts)
    if lines:
        yield RecordBlock([b"\n".join(lines)], start, 0, True, [start])


def _is_blank(line: bytes, start: int) -> bool:
    return not (line.removeprefix(MARK) if start == 0 else line).strip()


def _read_whole(
    blocks: Iterator[bytes], source_range: SourceRange, max_document_bytes: int
) -> RecordBlock:
    if not source_range.source.compression:
        check_size(source_range.source.num_bytes, 0, source_range, max_document_bytes)
    pieces: list[bytes] = []
    num_bytes = 0
    for block in blocks:
        pieces.append(block)
        num_bytes += len(block)
        check_size(num_bytes, 0, source_range, max_document_bytes)
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return RecordBlock([whole], 0, num_bytes, b"\r" in whole)


def _check_sizes(block: RecordBlock, source_range: SourceRange, limit: int) -> None:
    for index, record in enumerate(block.records):
        if len(record) > limit:
            check_size(len(record), block.find_start(index), source_range, limit)


def check_size(num_bytes: int, start: int, source_range: SourceRange, limit: int) -> None:
    """Raise DataError if a record that begins at a byte of the text is larger than the limit."""
    if num_bytes > limit:
        source = source_range.source
        raise oversized_error(f"{source.path}:{find_line_number(source, start)}", limit)
