"""Decompress a stream of gzip, bzip2, xz or zstd, one block at a time, with any number of members.

All four decompressors have the standard library's interface (`decompress(data, max_length)`, `eof`,
`unused_data`), so one loop serves them. A truncated or empty stream is an error: a partial download
must not look like a short corpus. So is a stream that expands far more than text does.
"""

from __future__ import annotations

import bz2
import functools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from seqpack_cli.errors import MachineError
from seqpack_cli.limits import LIMITS

MAX_XZ_MEMORY = 512 << 20  # `xz -9` asks for 65 MiB
MAX_RATIO = 256  # text expands to 3 to 20 times its compressed size, a gzip bomb to 1,000
FREE_BYTES = 64 << 20  # of text that are allowed at any ratio
LINE_BYTES = 16  # added for each line: what a document takes in memory and in the store
MIN_PIECE_BYTES = 256
MAX_EMPTY_MEMBERS = 100_000  # each takes up to 25 microseconds


class BadCompressionError(Exception):
    """A compressed stream cannot be read; the caller adds the file's name."""


class BombError(BadCompressionError):
    """A stream expands far more than text does."""


class GzipDecompressor:
    """zlib's decompressor for one gzip member, with the interface of bz2's and lzma's."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most max_length bytes; call again, with b"" if need be, for the rest."""
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        """Return whether more data is needed before more can be decompressed."""
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        """Return whether the end of the member was reached."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """Return the data after the member."""
        return self._inner.unused_data


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


OPENERS: dict[str, Callable[[], Any]] = {
    "gzip": GzipDecompressor,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY),
    "zstd": lambda: _load_zstd().ZstdDecompressor(),
}


def iter_decompressed(blocks: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """Decompress a stream of one or many members.

    Raises:
        BadCompressionError: it is damaged, truncated, empty, or followed by other bytes.
        BombError: it expands to more than MAX_RATIO times its size.
        MachineError: the package for this compression is not installed.
    """
    members = _Members(OPENERS[compression])
    num_read = num_given = 0
    try:
        for block in blocks:
            num_read += len(block)
            for text in members.decompress(block):
                num_given += len(text) + LINE_BYTES * text.count(b"\n")
                check_ratio(num_read, num_given)
                yield text
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise BadCompressionError(f"not {compression}, or damaged ({error})") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # a BombError too
            raise
        raise BadCompressionError(f"not {compression}, or damaged ({error})") from error
    if members.num_whole == 0 and members.is_between:
        raise BadCompressionError(f"0 bytes, expected {compression} data")
    if not members.is_between:
        raise BadCompressionError(f"truncated {compression} data")


class _Members:
    """Decompress the members of a stream, each with a decompressor of its own.

    A decompressor copies the data that follows its member. So that a block of a thousand short
    members is not copied a thousand times, it gets pieces about as large as the previous member.
    """

    def __init__(self, open_member: Callable[[], Any]) -> None:
        self._open = open_member
        self._member = open_member()
        self._num_taken = 0  # compressed bytes of the member
        self._piece_bytes = LIMITS.read_bytes
        self._is_empty = True  # no text came from the member so far
        self._num_empty = 0
        self.num_whole = 0
        self.is_between = True

    def decompress(self, block: bytes) -> Iterator[bytes]:
        place = 0
        while place < len(block):
            piece = block[place : place + self._piece_bytes]
            place += len(piece)
            if self.is_between and self.num_whole:
                piece = piece.lstrip(b"\0")  # files may be padded with zeros
            if piece:
                yield from self._decompress_piece(piece)
            if self._member.eof:
                place -= len(self._member.unused_data)
                self._begin_next(len(self._member.unused_data))
            else:
                self._piece_bytes = min(2 * self._piece_bytes, LIMITS.read_bytes)

    def _decompress_piece(self, piece: bytes) -> Iterator[bytes]:
        self.is_between = False
        self._num_taken += len(piece)
        size = LIMITS.read_bytes
        while True:
            text = self._member.decompress(piece, size)
            piece = b""
            if text:
                self._is_empty = False
                yield text
            if self._member.eof or (self._member.needs_input and len(text) < size):
                return

    def _begin_next(self, num_unused: int) -> None:
        num_bytes = self._num_taken - num_unused
        self._piece_bytes = min(max(2 * num_bytes, MIN_PIECE_BYTES), LIMITS.read_bytes)
        self._num_empty += self._is_empty
        if self._num_empty > MAX_EMPTY_MEMBERS:
            raise ValueError(f"more than {MAX_EMPTY_MEMBERS:,} members without data")
        self._member, self._num_taken, self._is_empty = self._open(), 0, True
        self.num_whole += 1
        self.is_between = True


def check_ratio(num_read: int, num_given: int) -> None:
    """Raise BombError if a file expands far more than text does."""
    if num_given > max(FREE_BYTES, MAX_RATIO * num_read):
        raise BombError(
            f"expands to more than {MAX_RATIO} times its compressed size, far more than text does"
        )
