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
                hint="pip install 'seqpack[zstd]'",
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
    open_member = OPENERS[compression]
    member = open_member()
    is_empty, num_whole = True, 0
    num_read = num_given = 0
    try:
        for block in blocks:
            data = block
            num_read += len(block)
            while True:
                if is_empty:  # between members, where zeros may fill a file up
                    data = data.lstrip(b"\0") if num_whole else data
                    if not data:
                        break
                    is_empty = False
                text = member.decompress(data, BLOCK_BYTES)
                data = b""
                if text:
                    num_given += len(text)
                    check_ratio(num_read, num_given)
                    yield text
                if member.eof:
                    data = member.unused_data
                    member, is_empty, num_whole = open_member(), True, num_whole + 1
                elif member.needs_input and len(text) < BLOCK_BYTES:
                    break
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise BadCompressionError(f"not {compression}, or damaged ({error})") from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # a BombError too
            raise
        raise BadCompressionError(f"not {compression}, or damaged ({error})") from error
    if num_whole == 0 and is_empty:
        raise BadCompressionError(f"0 bytes, expected {compression} data")
    if not is_empty:
        raise BadCompressionError(f"ends early, inside its {compression} data")


def check_ratio(num_read: int, num_given: int) -> None:
    """Raise BombError if more bytes of text came out of a file than any text would give."""
    if num_given > max(FREE_BYTES, MAX_RATIO * num_read):
        raise BombError(f"more than {MAX_RATIO} times its compressed size came out, no text does")
