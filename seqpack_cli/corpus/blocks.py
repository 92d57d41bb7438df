"""Read a range of a file in decompressed blocks of about 1 MiB.

`on_read` is called with the raw bytes of the file, before decompression: a run hashes them and
counts its progress there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from blake3 import blake3

from seqpack_cli.corpus.decompression import BadCompressionError, BombError, iter_decompressed
from seqpack_cli.corpus.file_kinds import HEAD_BYTES, check_text
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, FolderError

CHANGED_HINT = "wait until it is completely written, then run the same command with --overwrite"

OnRead = Callable[[bytes], object]


def iter_blocks(source_range: SourceRange, on_read: OnRead) -> Iterator[bytes]:
    """Read the text of a range, block by block.

    Raises:
        DataError: the file is not text, is truncated, or its compressed data is damaged.
    """
    source = source_range.source
    blocks = iter_raw_blocks(source_range, on_read)
    if source.compression:
        blocks = _decompress(blocks, source)
    if source_range.start == 0:
        yield from _check_head(blocks, source)
    yield from blocks


def _check_head(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """Yield the first blocks of a file, after a check that they are text."""
    head: list[bytes] = []
    num_bytes = 0
    try:
        while num_bytes < HEAD_BYTES and (block := next(blocks, None)) is not None:
            head.append(block)
            num_bytes += len(block)
    except DataError:  # an error in what comes before it is reported first
        check_text(b"".join(head), source)
        yield from head
        raise
    check_text(b"".join(head), source)
    yield from head


def iter_raw_blocks(source_range: SourceRange, on_read: OnRead) -> Iterator[bytes]:
    """Read the raw bytes of a range, block by block.

    Raises:
        DataError: the file cannot be read, or is shorter than when the run was planned.
    """
    source, start, end = source_range[1:]
    left = end - start
    with naming_input(source.path):
        for block in source.input.iter_range(start, end):
            on_read(block)
            left -= len(block)
            yield block
    if left > 0:
        raise DataError(
            f"{source.path}: changed while it was read, ends {left:,} bytes early",
            hint=CHANGED_HINT,
        )


def find_line_number(source: Source, byte: int) -> int:
    """Return the number, from 1, of the line that contains a byte of the text.

    Reads the file again from its start, so it is called for errors only.
    """
    number = 1
    for block in iter_blocks(SourceRange(0, source, 0, source.num_bytes), lambda _: None):
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


def _decompress(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    num_bytes = num_lines = 0
    try:
        for block in iter_decompressed(blocks, source.compression):
            yield block
            num_bytes += len(block)
            num_lines += block.count(b"\n")
    except BadCompressionError as error:
        hint = f"{num_bytes:,} bytes of text could be read; download or copy the file again"
        if isinstance(error, BombError):
            hint = "if this is intended, decompress it and pass the result"
        raise DataError(f"{source.path}:{num_lines + 1}: {error}", hint=hint) from error
