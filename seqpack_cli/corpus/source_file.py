"""The bytes of a source: a local file, or an object that is streamed with read-ahead.

Nothing is copied: ranges of one object are read by many workers, each its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from seqpack_cli.corpus.sources import Source
from seqpack_cli.errors import DataError, FolderError
from seqpack_cli.files.places import at

BLOCK_BYTES = 1 << 20
UNPACKED = b'{"index": 0, "text": '
MAX_LOOKS = 1000  # take 20 ms


def open_source(source: Source) -> BinaryIO:
    """Open a source to look at a few places of it."""
    return at(source.place).open_input(source.num_bytes)


def find_openable(source: Source) -> str | BinaryIO:
    """Return what a library opens that reads paths by itself, faster than files of Python's."""
    return at(source.place).choose(here=_find_path, there=open_source)(source)


def iter_range(source: Source, start: int, end: int) -> Iterator[bytes]:
    """Read a range in blocks of at most 1 MiB; less where the source ends.

    Raises:
        OSError: the file can not be read.
        DataError: the object is gone.
    """
    is_whole = (start, end) == (0, source.num_bytes)
    pieces = at(source.place).iter_input(start, end, source.modified if is_whole else None)
    with _naming_data():
        for piece in pieces:
            for first in range(0, len(piece), BLOCK_BYTES):
                yield piece[first : first + BLOCK_BYTES]


def find_unpacked(sources: Sequence[Source]) -> list[str]:
    """Name the files that look like what `unpack --text` wrote, among the first JSON lines here."""
    lines = [source for source in sources if source.format == "jsonl" and not source.compression]
    found = []
    for source in lines[:MAX_LOOKS]:
        is_unpacked = at(source.place).choose(here=_is_unpacked, there=_is_too_far)
        with contextlib.suppress(OSError):  # said when it is read
            if is_unpacked(source):
                found.append(source.path)
    return found


def find_source_version(source: Source) -> tuple[int, int | str]:
    """Return the size of a source as it is now, and what changes when it is written again.

    Raises:
        OSError: the file can not be found.
        DataError: the object is gone.
    """
    with _naming_data():
        return at(source.place).find_version()


def _is_unpacked(source: Source) -> bool:
    with open_source(source) as file:
        return file.read(len(UNPACKED)) == UNPACKED


def _is_too_far(_: Source) -> bool:
    return False  # a request is too much for a warning


def _find_path(source: Source) -> str | BinaryIO:
    return source.location


@contextlib.contextmanager
def _naming_data() -> Iterator[None]:
    """Say of an object that is gone that the data are wrong, not a folder of ours."""
    try:
        yield
    except FolderError as error:
        raise DataError(error.message) from error
