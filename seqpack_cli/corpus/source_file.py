"""The bytes of a source: a local file, or an object that is streamed with read-ahead.

Nothing is copied: ranges of one object are read by many workers, each its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.files.objects import (
    find_version,
    iter_checked_object,
    iter_object,
    open_object,
)
from seqpack_cli.files.url import Url, is_url

BLOCK_BYTES = 1 << 20
UNPACKED = b'{"index": 0, "text": '
MAX_LOOKS = 1000  # take 20 ms


def open_source(source: Source) -> BinaryIO:
    """Open a source to look at a few places of it."""
    if is_url(source.location):
        return open_object(Url(source.location), source.num_bytes)
    return open(source.location, "rb")  # noqa: PTH123 - there may be 100,000


def iter_range(source: Source, start: int, end: int) -> Iterator[bytes]:
    """Read a range in blocks of about 1 MiB; less where the source ends.

    Raises:
        OSError: the file can not be read.
        DataError: the object is gone.
    """
    if is_url(source.location):
        yield from _iter_object_blocks(source, start, end)
        return
    with open(source.location, "rb", buffering=0) as file:  # noqa: PTH123
        if start:
            file.seek(start)
        while start < end and (block := file.read(min(BLOCK_BYTES, end - start))):
            yield block
            start += len(block)


def find_unpacked(sources: Sequence[Source]) -> list[str]:
    """Name the files that look like what `unpack --text` wrote, among the first JSON lines here."""
    lines = [source for source in sources if source.format == "jsonl" and not source.compression]
    found = []
    for source in [source for source in lines if not is_url(source.location)][:MAX_LOOKS]:
        with contextlib.suppress(OSError), open_source(source) as file:  # said when it is read
            if file.read(len(UNPACKED)) == UNPACKED:
                found.append(source.path)
    return found


def find_source_version(source: Source) -> tuple[int, int | str]:
    """Give the size of a source as it is now, and what changes when it is written again.

    Raises:
        OSError: the file can not be found.
        DataError: the object is gone.
    """
    if is_url(source.location):
        try:
            return find_version(Url(source.location))
        except FolderError as error:
            raise DataError(error.message) from error
    status = os.stat(source.location)  # noqa: PTH116
    return status.st_size, status.st_mtime_ns


def _iter_object_blocks(source: Source, start: int, end: int) -> Iterator[bytes]:
    url = Url(source.location)
    is_whole = (start, end) == (0, source.num_bytes)
    pieces = (
        iter_checked_object(url, end, str(source.modified))
        if is_whole
        else iter_object(url, start, end)
    )
    try:
        for piece in pieces:
            for first in range(0, len(piece), BLOCK_BYTES):
                yield piece[first : first + BLOCK_BYTES]
    except FolderError as error:
        raise DataError(error.message) from error
