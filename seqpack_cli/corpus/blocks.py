"""A range of a file -> its bytes in blocks of about 1 MiB, decompressed.

`on_read` sees the bytes of the file itself as they are read, compressed or not: a run hashes them
there and counts its progress.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from seqpack_cli.corpus.decompression import BadCompressionError, BombError, iter_decompressed
from seqpack_cli.corpus.formats import COMPRESSION_OF_SUFFIX
from seqpack_cli.corpus.source_file import find_source_version, iter_range
from seqpack_cli.corpus.sources import Source, SourceRange
from seqpack_cli.errors import DataError, quote

CHANGED_HINT = "wait until it is whole, then run the same command with --overwrite"
UTF16_SAMPLE = 4096
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

OnRead = Callable[[bytes], object]


def iter_blocks(source_range: SourceRange, on_read: OnRead) -> Iterator[bytes]:
    """Read the text of a range, block by block.

    Raises:
        DataError: the file is UTF-16, ends early, or its compression is damaged.
    """
    source = source_range.source
    blocks = iter_raw_blocks(source_range, on_read)
    if source.compression:
        blocks = _decompress(blocks, source)
    is_first = source_range.start == 0
    for block in blocks:
        if is_first:
            _check_first(block, source)
            is_first = False
        yield block


def iter_raw_blocks(source_range: SourceRange, on_read: OnRead) -> Iterator[bytes]:
    """Read the bytes of a range as they are in the file.

    Raises:
        DataError: the file can not be read, or is shorter than when the run was planned.
    """
    path = source_range.source.path
    left = source_range.end - source_range.start
    try:
        for block in iter_range(source_range.source, source_range.start, source_range.end):
            on_read(block)
            left -= len(block)
            yield block
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if left > 0:
        raise DataError(
            f"{path}: changed while it was read, ends {left:,} bytes early", hint=CHANGED_HINT
        )


def find_line_number(source: Source, byte: int) -> int:
    """Give the number, from 1, of the line that holds a byte of the text.

    Read only when an error needs it, from the file's begin.
    """
    number = 1
    for block in iter_blocks(SourceRange(0, source, 0, source.num_bytes), lambda _: None):
        if byte <= len(block):
            return number + block.count(b"\n", 0, byte)
        number += block.count(b"\n")
        byte -= len(block)
    return number


def check_unchanged(source: Source) -> None:
    """Raise DataError if a file is another than when it was found, so that no bytes are mixed."""
    try:
        found = find_source_version(source)
    except OSError as error:
        raise DataError(f"{source.path}: {error.strerror or error}") from error
    if source.modified is not None and found != (source.num_bytes, source.modified):
        raise DataError(f"{source.path}: changed while it was read", hint=CHANGED_HINT)


def hash_range(source_range: SourceRange) -> str:
    """Give the sha256 of a range's bytes as hex, or "" if they are no longer there."""
    digest = hashlib.sha256()
    try:
        for _ in iter_raw_blocks(source_range, digest.update):
            pass
    except DataError:
        return ""
    return digest.hexdigest()


def _decompress(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    num_bytes = num_lines = 0
    try:
        for block in iter_decompressed(blocks, source.compression):
            yield block
            num_bytes += len(block)
            num_lines += block.count(b"\n")
    except BadCompressionError as error:
        hint = f"{num_bytes:,} bytes of text came before; get the file again"
        if isinstance(error, BombError):
            hint = "if it is meant to be like that, decompress it and name the result"
        raise DataError(f"{source.path}:{num_lines + 1}: {error}", hint=hint) from error


def _check_first(block: bytes, source: Source) -> None:
    encoding = _find_utf16(block)
    if encoding is None:
        return
    name, typed = Path(Path(source.path).name), shlex.quote(source.path)
    decompress, place = "", f" {typed}"
    if source.compression:
        decompress, place = f"{source.compression} -dc {typed} | ", ""
        name = Path(name.stem) if name.suffix.lower() in COMPRESSION_OF_SUFFIX else name
    result = f"{name.stem}.utf8{name.suffix}"
    raise DataError(
        f"{source.path}:1: UTF-16 (begins with {quote(block[:2])}), expected UTF-8",
        hint=f"{decompress}iconv -f {encoding} -t UTF-8{place} > {shlex.quote(result)}",
    )


def _find_utf16(block: bytes) -> str | None:
    """Say whether a text is UTF-16, by its mark, or without one by the NUL in every second byte."""
    if block.startswith(UTF16_MARKS):
        return "UTF-16"
    sample = block[:UTF16_SAMPLE]
    num_even, num_odd = sample[::2].count(0), sample[1::2].count(0)
    few, many = sorted((num_even, num_odd))
    if len(sample) < UTF16_SAMPLE // 64 or many < 0.4 * len(sample) or few > 0.02 * len(sample):
        return None
    return "UTF-16BE" if num_even > num_odd else "UTF-16LE"
