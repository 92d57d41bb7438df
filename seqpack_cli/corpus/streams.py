"""Read a range of a file in blocks, and split its text into lines, paragraphs or one whole record.

Every block is handed to `on_read` before it is decompressed: a run hashes it and counts its
progress there. At most a block of 1 MiB and one record are in memory; a record above the limit is
refused while it is read. Lines end only at \\n: U+2028, \\x0b or \\x85 do not cut a text.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from blake3 import blake3

from seqpack_cli.corpus.fields import oversized_error
from seqpack_cli.corpus.sources import HEAD_BYTES, Source, SourceRange, check_text
from seqpack_cli.errors import DataError, FolderError, MachineError
from seqpack_cli.limits import LIMITS

MARK = "\ufeff".encode()  # the byte order mark
CHANGED_HINT = "wait until it is completely written, then run the same command with --overwrite"
MAX_XZ_MEMORY = 512 << 20  # `xz -9` asks for 65 MiB
PIECE_BYTES = 1 << 17  # given to a decompressor, which copies what follows its member

OnRead = Callable[[bytes], object]


def iter_raw_blocks(source_range: SourceRange, on_read: OnRead | None) -> Iterator[bytes]:
    """Read the raw bytes of a range, block by block.

    Raises:
        DataError: the file cannot be read, or is shorter than when the run was planned.
    """
    _, source, start, end = source_range
    left = end - start
    with naming_input(source.path):
        for block in source.input.iter_range(start, end):
            if on_read is not None:
                on_read(block)
            left -= len(block)
            yield block
    if left > 0:
        raise DataError(
            f"{source.path}: changed while it was read, ends {left:,} bytes early",
            hint=CHANGED_HINT,
        )


def iter_blocks(source_range: SourceRange, on_read: OnRead | None) -> Iterator[bytes]:
    """Read the text of a range, block by block.

    Raises:
        DataError: the file is not text, is truncated, or its compressed data is damaged.
    """
    source = source_range.source
    blocks = iter_raw_blocks(source_range, on_read)
    if source.compression:
        blocks = _decompress(blocks, source)
    if source_range.start == 0:
        head: list[bytes] = []
        try:
            while sum(map(len, head)) < HEAD_BYTES and (block := next(blocks, None)) is not None:
                head.append(block)
        finally:  # an error in what comes before another one is reported first
            check_text(b"".join(head), source)
            yield from head
    yield from blocks


def find_line_number(source: Source, byte: int) -> int:
    """Return the number, from 1, of the line that contains a byte of the text.

    Reads the file again from its start, so it is called for errors only.
    """
    number = 1
    for block in iter_blocks(SourceRange(0, source, 0, source.num_bytes), None):
        if byte <= len(block):
            return number + block.count(b"\n", 0, byte)
        number += block.count(b"\n")
        byte -= len(block)
    return number


def check_unchanged(source: Source) -> None:
    """Raise DataError if a file, or the index beside it, has changed since it was found."""
    with naming_input(source.path):
        found = source.input.find_version()
    if source.modified is not None and found != (source.num_bytes, source.modified):
        raise DataError(f"{source.path}: changed while it was read", hint=CHANGED_HINT)
    if source.index_file is not None:
        check_unchanged(source.index_file)


def hash_range(source_range: SourceRange) -> str:
    """Return the BLAKE3 checksum of a range's bytes as hex, or "" if they cannot be read."""
    digest = blake3()
    try:
        for _ in iter_raw_blocks(source_range, digest.update):
            pass
    except DataError:
        return ""
    return digest.hexdigest()


@contextlib.contextmanager
def naming_input(path: str) -> Iterator[None]:
    """Turn a failure to read an input into a DataError that names it."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except FolderError as error:
        raise DataError(error.message) from error


@functools.cache
def _load_zstd() -> Any:
    try:
        from compression import zstd
    except ImportError:
        try:
            from backports import zstd
        except ImportError as error:
            raise MachineError(
                "backports.zstd is not installed, .zst files need it",
                hint="pip install backports.zstd",
            ) from error
    return zstd


DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY),
    "zstd": lambda: _load_zstd().ZstdDecompressor(),
}


def _decompress(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """Decompress a stream of one or many members, padded with zeros or not.

    A truncated or empty stream is an error: a partial download must not look like a short corpus.
    """
    size, compression = LIMITS.read_bytes, source.compression
    num_bytes = num_lines = num_members = 0
    member: Any = None

    def damaged(what: str) -> DataError:
        hint = f"{num_bytes:,} bytes of text could be read; download or copy the file again"
        return DataError(f"{source.path}:{num_lines + 1}: {what}", hint)

    for block in blocks:
        for start in range(0, len(block), PIECE_BYTES):
            piece = block[start : start + PIECE_BYTES]
            while True:
                if member is None:
                    piece = piece.lstrip(b"\0") if num_members else piece
                    if not piece:
                        break
                    member = DECOMPRESSORS[compression]()
                try:
                    text = member.decompress(piece, size)
                except MemoryError:
                    raise
                except Exception as error:  # each library has its own types
                    raise damaged(f"not {compression}, or damaged ({error})") from error
                if text:
                    yield text
                num_bytes += len(text)
                num_lines += text.count(b"\n")
                if member.eof:
                    piece, member = member.unused_data, None
                    num_members += 1
                    continue
                # What zlib did not take yet; the others keep it, and ask for more.
                piece = getattr(member, "unconsumed_tail", b"")
                if not piece and getattr(member, "needs_input", True) and len(text) < size:
                    break
    if member is not None:
        raise damaged(f"truncated {compression} data")
    if not num_members:
        raise damaged(f"0 bytes, expected {compression} data")


class RawBlock(NamedTuple):
    """Some records of a text, in order."""

    records: list[bytes]  # without the line end; a \\r before it stays
    start: int  # byte of the text at which the first record begins
    num_bytes: int  # of the text, line ends and blank lines included
    has_returns: bool  # it contains a \\r
    starts: list[int] | None = None  # where each begins, unless they follow each other line by line
    num_before: int | None = None  # the number of records before it, of a JSON array

    @property
    def is_array(self) -> bool:
        """Whether the records are elements of a JSON array."""
        return self.num_before is not None

    def find_start(self, index: int) -> int:
        """Return the byte of the text at which a record begins."""
        if self.starts is not None:
            record = self.records[index]
            num_spaces = len(record) - len(record.lstrip()) if self.is_array else 0
            return self.starts[index] + num_spaces
        return self.start + sum(len(record) + 1 for record in self.records[:index])

    def find_place(self, source: Source, index: int, byte: int = 0) -> str:
        """Return "path:line" of a byte of a record, with the number of an element of an array."""
        place = f"{source.path}:{find_line_number(source, self.find_start(index) + byte)}"
        if self.num_before is None:
            return place
        return f"{place}: record {self.num_before + index + 1}"


def iter_raw_records(
    source_range: SourceRange, max_document_bytes: int, on_read: OnRead | None
) -> Iterator[RawBlock]:
    """Read the lines or paragraphs of a range, or the whole file, block by block.

    Raises:
        DataError: the file is not of its format, or a record is larger than max_document_bytes.
    """
    source = source_range.source
    blocks = iter_blocks(source_range, on_read)
    if source.document == "file":
        data = bytearray()
        for block in blocks:
            data += block
            check_size(len(data), 0, source, max_document_bytes)
        yield RawBlock([bytes(data)], 0, len(data), b"\r" in data)
        return
    lines = split_lines(blocks, source_range, max_document_bytes)
    if source.document == "paragraph":
        lines = _join_paragraphs(lines, source, max_document_bytes)
    yield from lines


def split_lines(
    blocks: Iterator[bytes], source_range: SourceRange, max_document_bytes: int
) -> Iterator[RawBlock]:
    """Split blocks at \\n; a line may span blocks."""
    source, start = source_range.source, source_range.start
    rest: list[bytes] = []  # the pieces of a line whose end is not read yet
    num_rest = 0
    for block in blocks:
        lines = block.split(b"\n")
        last = lines.pop()
        if not lines:
            rest.append(last)
            num_rest += len(last)
            check_size(num_rest, start, source, max_document_bytes)
            continue
        has_returns = b"\r" in block
        if rest:
            lines[0] = b"".join([*rest, lines[0]])
            has_returns = has_returns or b"\r" in lines[0]
        num_bytes = num_rest + len(block) - len(last)
        found = RawBlock(lines, start, num_bytes, has_returns)
        check_sizes(found, source, max_document_bytes)
        yield found
        start += num_bytes
        rest, num_rest = [last] if last else [], len(last)
    if num_rest:
        check_size(num_rest, start, source, max_document_bytes)
        line = b"".join(rest)
        yield RawBlock([line], start, num_rest, b"\r" in line)


def _join_paragraphs(
    line_blocks: Iterator[RawBlock], source: Source, max_document_bytes: int
) -> Iterator[RawBlock]:
    lines: list[bytes] = []
    start = 0
    for block in line_blocks:
        records: list[bytes] = []
        starts: list[int] = []
        line_start = block.start
        for line in block.records:
            if (line.removeprefix(MARK) if line_start == 0 else line).strip():
                start = line_start if not lines else start
                lines.append(line)
                check_size(line_start + len(line) - start, start, source, max_document_bytes)
            elif lines:
                records.append(b"\n".join(lines))
                starts.append(start)
                lines = []
            line_start += len(line) + 1
        yield RawBlock(records, block.start, block.num_bytes, True, starts)
    if lines:
        yield RawBlock([b"\n".join(lines)], start, 0, True, [start])


def check_sizes(block: RawBlock, source: Source, limit: int) -> None:
    """Raise DataError if a record of a block is larger than the limit."""
    if block.num_bytes > limit:
        for index, record in enumerate(block.records):
            if len(record) > limit:
                check_size(len(record), block.find_start(index), source, limit)


def check_size(num_bytes: int, start: int, source: Source, limit: int) -> None:
    """Raise DataError if a record that begins at a byte of the text is larger than the limit."""
    if num_bytes > limit:
        raise oversized_error(f"{source.path}:{find_line_number(source, start)}", limit)
