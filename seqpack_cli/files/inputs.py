"""Inputs that a user names: a local file or an object, read with the same methods.

Links are followed, because the input is the user's own; `places` is for files that may come from
somebody else. Nothing is copied: many workers read different ranges of one input. A local file
raises OSError, a missing object FolderError.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from seqpack_cli.files.mapping import map_file
from seqpack_cli.files.objects import (
    AnyPath,
    Url,
    find_object,
    iter_object,
    naming_requests,
    read_object,
)
from seqpack_cli.files.places import is_url, parse_place
from seqpack_cli.limits import LIMITS

READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class ListedName(str):
    """A path or URL from a list, which is never a glob.

    Args:
        name: the path or URL.
        place: where the name is, as LIST:line.
    """

    __slots__ = ("place",)
    place: str

    def __new__(cls, name: str, place: str) -> ListedName:
        """Make the name."""
        listed = super().__new__(cls, name)
        listed.place = place
        return listed


class Input(NamedTuple):
    """A file or an object. Its name is a str, smaller than a Path: there may be 100,000."""

    name: str

    @property
    def url(self) -> Url | None:
        """The address of an object, None of a local file."""
        return Url(self.name) if is_url(self.name) else None

    def open(self, num_bytes: int) -> BinaryIO:
        """Open a file of a known size for random access."""
        if self.url is None:
            return open(self.name, "rb")  # noqa: PTH123
        system, key = self.url.open_file_system()
        with naming_requests(self.url):
            file = system.open(key, "rb", cache_type="none", size=num_bytes)
            return io.BufferedReader(file, LIMITS.seek_bytes)

    def read(self) -> bytes | None:
        """Read a whole file; None if there is no local file of this name."""
        if self.url is not None:
            return read_object(self.url)
        return Path(self.name).read_bytes() if os.path.isfile(self.name) else None  # noqa: PTH113

    def map(self, num_bytes: int) -> np.ndarray:
        """Return the bytes of a file of a known size, uint8; a local one is mapped."""
        with self.open(num_bytes) as file:
            if self.url is not None:
                return np.frombuffer(file.read(), np.uint8)
            if os.fstat(file.fileno()).st_size < num_bytes:  # reading past its end would crash
                raise OSError(errno.EIO, "became shorter while it was read", self.name)
            return map_file(file.fileno(), num_bytes) if num_bytes else np.empty(0, np.uint8)

    def read_head(self, num_bytes: int) -> bytes:
        """Read the first bytes of a local file; a request costs too much: they serve a warning."""
        if self.url is not None:
            return b""
        with self.open(num_bytes) as file:
            return file.read(num_bytes)

    def iter_range(self, start: int, end: int) -> Iterator[bytes]:
        """Yield a range in blocks of at most `read_bytes`; it may end early, with the input."""
        size = LIMITS.read_bytes
        if self.url is not None:
            for piece in iter_object(self.url, start, end):
                for first in range(0, len(piece), size):
                    yield piece[first : first + size]
            return
        with open(self.name, "rb", buffering=0) as file:  # noqa: PTH123
            if start:
                file.seek(start)
            while start < end and (block := file.read(min(size, end - start))):
                yield block
                start += len(block)

    def read_block(self, num_bytes: int, version: object) -> bytes | None:
        """Return a whole small local file; there may be 100,000, so with few calls.

        Args:
            num_bytes: its size when it was found.
            version: of `find_version` then.

        Returns:
            The bytes; None if the file cannot be read, or its size or version is another now.
        """
        try:
            file = os.open(self.name, READ_FLAGS)
            try:
                data = os.read(file, num_bytes + 1)
                status = os.fstat(file)
            finally:
                os.close(file)
        except OSError:  # of an object too, which is read ahead elsewhere
            return None
        is_same = len(data) == status.st_size == num_bytes and status.st_mtime_ns == version
        return data if is_same else None

    def find_version(self) -> tuple[int, int | str]:
        """Return the current size, and a value that changes when the input is written again."""
        if self.url is not None:
            return find_object(self.url)
        status = os.stat(self.name)  # noqa: PTH116
        return status.st_size, status.st_mtime_ns


def spell_inputs(inputs: AnyPath | Sequence[AnyPath]) -> list[str]:
    """Return the inputs of a run, which may be a single one, as texts: they may be globs or `-`."""
    names = [inputs] if isinstance(inputs, str) or not isinstance(inputs, Sequence) else inputs
    return [spell_input(name) for name in names]


def spell_input(name: AnyPath) -> str:
    """Return an input as a text, a str as it is."""
    if isinstance(name, str) and name:
        return name
    text = str(parse_place(name))
    return "./-" if text == "-" else text  # a file: pathlib has dropped the ./
