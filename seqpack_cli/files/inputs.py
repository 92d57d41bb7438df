"""What a user names to be read: a file of this machine, or an object, with the same verbs.

It is the user's own and opened as the system opens it, links too, where `places` is for what a
stranger may have written. Nothing is copied: ranges of one input are read by many workers, each its
own. What the system refuses is an OSError, and an object that is gone a FolderError.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from seqpack_cli.files.file_systems import naming_requests
from seqpack_cli.files.objects import (
    find_object,
    iter_checked_object,
    iter_object,
    read_object,
)
from seqpack_cli.files.url import Url, is_url

BLOCK_BYTES = 1 << 20
SEEK_BYTES = 64 << 10  # read at least where only a few bytes of an object are looked at
Choice = TypeVar("Choice")


class LocalInput(NamedTuple):
    """A file of this machine; its path is a text, since there may be 100,000."""

    path: str

    def open(self, num_bytes: int) -> BinaryIO:
        """Open a file of a known size to look at a few places of it."""
        del num_bytes
        return open(self.path, "rb")  # noqa: PTH123

    def open_natively(self, num_bytes: int) -> str | BinaryIO:
        """Return what pyarrow is given: a path, which it opens itself and reads faster."""
        del num_bytes
        return self.path

    def read(self) -> bytes | None:
        """Read a whole file; None if no file of this machine has the name."""
        return Path(self.path).read_bytes() if os.path.isfile(self.path) else None  # noqa: PTH113

    def read_head(self, num_bytes: int) -> bytes:
        """Read the first bytes where that costs next to nothing."""
        with self.open(num_bytes) as file:
            return file.read(num_bytes)

    def iter_range(self, start: int, end: int, version: object = None) -> Iterator[bytes]:
        """Read a range in blocks of at most 1 MiB; less where the input ends.

        Args:
            version: of `find_version`, where a whole object is read: its bytes are compared.
        """
        del version
        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123
            if start:
                file.seek(start)
            while start < end and (block := file.read(min(BLOCK_BYTES, end - start))):
                yield block
                start += len(block)

    def find_version(self) -> tuple[int, int | str]:
        """Return the size as it is now, and what changes when the input is written again."""
        status = os.stat(self.path)  # noqa: PTH116
        return status.st_size, status.st_mtime_ns

    def choose(self, *, here: Choice, there: Choice) -> Choice:
        """Return one of two things, where the difference is no matter of files."""
        del there
        return here


class RemoteInput(NamedTuple):
    """An object; what the verbs do is said in `LocalInput`."""

    url: Url

    def open(self, num_bytes: int) -> BinaryIO:
        system, key = self.url.open_file_system()
        with naming_requests(self.url):
            file = system.open(key, "rb", cache_type="none", size=num_bytes)
            return io.BufferedReader(file, SEEK_BYTES)

    def open_natively(self, num_bytes: int) -> str | BinaryIO:
        return self.open(num_bytes)

    def read(self) -> bytes | None:
        return read_object(self.url)

    def read_head(self, num_bytes: int) -> bytes:
        del num_bytes
        return b""  # a request is too much for what only serves a warning

    def iter_range(self, start: int, end: int, version: object = None) -> Iterator[bytes]:
        pieces = iter_object(self.url, start, end)
        if version is not None:
            pieces = iter_checked_object(self.url, end, str(version))
        for piece in pieces:
            for first in range(0, len(piece), BLOCK_BYTES):
                yield piece[first : first + BLOCK_BYTES]

    def find_version(self) -> tuple[int, int | str]:
        return find_object(self.url)

    def choose(self, *, here: Choice, there: Choice) -> Choice:
        del here
        return there


def find_input(name: str) -> LocalInput | RemoteInput:
    """Return what reads the input of a name, or of all names that a glob stands for."""
    return RemoteInput(Url(name)) if is_url(name) else LocalInput(name)
