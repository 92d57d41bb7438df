"""Compressed blocks -> blocks of text, all members and frames, never more than a block at once.

All four decompressors speak the standard library's way (`decompress(data, max_length)`, `eof`,
`unused_data`), so one loop serves them. A stream that ends inside a member, or is empty, is an
error: a cut download must not look like a short corpus. So is one that grows beyond all measure.
"""

from __future__ import annotations

import bz2
import functools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from seqpack_cli.errors import MachineError

BLOCK_BYTES = 1 << 20
MAX_XZ_MEMORY = 512 << 20  # `xz -9` asks for 65 MiB
MAX_RATIO = 256  # text comes to 3 to 20 times its compressed size, a gzip bomb to 1,000
FREE_BYTES = 64 << 20  # of text, whatever its ratio
LINE_BYTES = 16  # that a line counts for besides its own: a document takes that in memory and store
MIN_PIECE_BYTES = 256
MAX_EMPTY_MEMBERS = 100_000  # each takes up to 25 microseconds and gives nothing


class BadCompressionError(Exception):
    """What is wrong with a compressed stream; the file's name is added where it is known."""


class BombError(BadCompressionError):
    """More comes out of a stream than any text would have become when it was compressed."""


class GzipDecompressor:
    """zlib's decompressor for one gzip member, with the manners of bz2's and lzma's."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Give at most max_length bytes; the rest comes with the next call, which may be empty."""
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        """Say that nothing more comes without more data."""
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        """Say that the member is whole."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """Give what follows the member."""
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
        BadCompressionError: it is damaged, ends early, is empty, or has other bytes after its end.
        BombError: it grows beyond MAX_RATIO times its size.
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
        raise BadCompressionError(f"ends early, inside its {compression} data")


class _Members:
    """The members of a stream, one decompressor after another.

    A decompressor copies what follows its member. So that a block of a thousand short members is
    not copied a thousand times, it is given pieces about as large as the member before it.
    """

    def __init__(self, open_member: Callable[[], Any]) -> None:
        self._open = open_member
        self._member = open_member()
        self._num_taken = 0  # of the member, compressed
        self._piece_bytes = BLOCK_BYTES
        self._is_silent = True  # nothing came out of the member
        self._num_empty = 0
        self.num_whole = 0
        self.is_between = True

    def decompress(self, block: bytes) -> Iterator[bytes]:
        place = 0
        while place < len(block):
            piece = block[place : place + self._piece_bytes]
            place += len(piece)
            if self.is_between and self.num_whole:
                piece = piece.lstrip(b"\0")  # zeros may fill a file up
            if piece:
                yield from self._decompress_piece(piece)
            if self._member.eof:
                place -= len(self._member.unused_data)
                self._begin_next(len(self._member.unused_data))
            else:
                self._piece_bytes = min(2 * self._piece_bytes, BLOCK_BYTES)

    def _decompress_piece(self, piece: bytes) -> Iterator[bytes]:
        self.is_between = False
        self._num_taken += len(piece)
        while True:
            text = self._member.decompress(piece, BLOCK_BYTES)
            piece = b""
            if text:
                self._is_silent = False
                yield text
            if self._member.eof or (self._member.needs_input and len(text) < BLOCK_BYTES):
                return

    def _begin_next(self, num_unused: int) -> None:
        num_bytes = self._num_taken - num_unused
        self._piece_bytes = min(max(2 * num_bytes, MIN_PIECE_BYTES), BLOCK_BYTES)
        self._num_empty += self._is_silent
        if self._num_empty > MAX_EMPTY_MEMBERS:
            raise ValueError(f"more than {MAX_EMPTY_MEMBERS:,} members without data")
        self._member, self._num_taken, self._is_silent = self._open(), 0, True
        self.num_whole += 1
        self.is_between = True


def check_ratio(num_read: int, num_given: int) -> None:
    """Raise BombError if more bytes of text came out of a file than any text would give."""
    if num_given > max(FREE_BYTES, MAX_RATIO * num_read):
        raise BombError(f"more than {MAX_RATIO} times its compressed size came out, no text does")
