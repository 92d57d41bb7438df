"""The bytes of a source: a local file, or an object that is streamed with read-ahead.

Nothing is copied: ranges of one object are read by many workers, each its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.files.inputs import BLOCK_BYTES, find_input

UNPACKED = b'{"index": 0, "text": '
MAX_LOOKS = 1000  # take 20 ms


def open_source(source: Source) -> BinaryIO:
    """Open a source to look at a few places of it."""
    return find_input(source.location).open(source.num_bytes)


def iter_range(source: Source, start: int, end: int) -> Iterator[bytes]:
    """Read a range in blocks of at most 1 MiB; less where the source ends.

    Raises:
        OSError: the file can not be read.
        DataError: the object is gone.
    """
    is_whole = (start, end) == (0, source.num_bytes)
    version = source.modified if is_whole else None
    try:
        for piece in find_input(source.location).iter_range(start, end, version):
            for first in range(0, len(piece), BLOCK_BYTES):
                yield piece[first : first + BLOCK_BYTES]
    except FolderError as error:
        raise DataError(error.message) from error


def find_unpacked(sources: Sequence[Source]) -> list[str]:
    """Name the files that look like what `unpack --text` wrote, among the first JSON lines here."""
    lines = [source for source in sources if source.format == "jsonl" and not source.compression]
    found = []
    for source in lines[:MAX_LOOKS]:
        with contextlib.suppress(OSError):  # said when it is read
            if find_input(source.location).read_head(len(UNPACKED)) == UNPACKED:
                found.append(source.path)
    return found


def find_source_version(source: Source) -> tuple[int, int | str]:
    """Return the size of a source as it is now, and what changes when it is written again.

    Raises:
        OSError: the file can not be found.
        DataError: the object is gone.
    """
    try:
        return find_input(source.location).find_version()
    except FolderError as error:
        raise DataError(error.message) from error
