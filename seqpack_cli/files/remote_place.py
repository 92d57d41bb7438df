"""A place in an object store: what `places.at` gives for it, with the verbs of `LocalPlace`.

An object is whole or absent: it is uploaded from a local file that was written and hashed first,
so that a put can be tried again. A lease is the lock of a folder, and what changes objects of a
folder under a lease checks it first (`held`). What is to be mapped becomes a local file
(`object_cache`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar

from blake3 import blake3

from seqpack_cli.errors import FolderError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.failures import check_same_size
from seqpack_cli.files.folder_lock import LOCK_NAME
from seqpack_cli.files.held import remove_held, upload_held
from seqpack_cli.files.lease import check_held, hold_lease
from seqpack_cli.files.object_cache import find_cache_limit, local_file
from seqpack_cli.files.objects import (
    find_object,
    iter_checked_object,
    iter_object,
    open_object,
    read_object,
)
from seqpack_cli.files.regular_files import NO_FILE
from seqpack_cli.files.url import Url

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class RemotePlace:
    """An object, or the objects below a URL."""

    url: Url
    num_readers: ClassVar[int] = 16  # at once: a request is mostly waiting

    def find_real_name(self) -> str:
        """Return the URL: no other names the same."""
        return str(self.url)

    def exists(self) -> bool:
        """Say whether an object is there, or any below it."""
        return self.url.exists()

    def check_size(self, num_bytes: int | None = None) -> int:
        """Return the size of an object.

        Raises:
            FolderError: it is missing, or of another size than the expected one.
        """
        size, _ = find_object(self.url)
        check_same_size(self.url, size, num_bytes)
        return size

    def find_sizes(self) -> Callable[[str], int | None]:
        """Return what finds the size of an object right below, as listed now."""
        sizes = {
            name: int(found["size"]) if found["type"] == "file" else NO_FILE
            for name, found in self.url.list_files().items()
        }
        return sizes.get

    def read(self, *, max_bytes: int) -> bytes:
        """Read a whole object, if it is no larger than it may be."""
        return read_object(self.url, max_bytes=max_bytes)

    def read_head(self, num_bytes: int) -> bytes:
        """Read the first bytes of an object that is not empty."""
        return b"".join(iter_object(self.url, 0, num_bytes))

    def hash(self) -> str:
        """Return the BLAKE3 checksum of a whole object as hex."""
        digest = blake3()
        for block in iter_object(self.url, 0, self.check_size()):
            digest.update(block)
        return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        """Yield the local file to open: a checked copy of the object, see `object_cache`."""
        return local_file(self.url, entry)

    def check_cache(self) -> None:
        """Raise OptionError where SEQPACK_CACHE_BYTES, which will be needed, is not a size."""
        find_cache_limit()

    def choose(self, *, here: Choice, there: Choice) -> Choice:
        """Return one of two things, where the difference is no matter of files."""
        del here
        return there

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        """Write a local file, and upload it when the block ends well."""
        del replace  # stores have no other way
        with disk.temporary_folder() as folder:
            path = folder / self.url.name
            with disk.create_file(path) as file:
                yield HashingWriter(file, self.url)
            upload_held(path, self.url)

    def remove(self) -> None:
        """Remove the object if it is there."""
        remove_held([self.url])

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove objects of this folder, those that are there, with few requests."""
        if urls := [self.url / name for name in names]:
            remove_held(urls)

    def make_folder(self) -> list[Path]:
        """Check that no object has the folder's name; there is nothing to make.

        Raises:
            FolderError: one has.
        """
        status = self.url.find_status()
        if status is not None and status["type"] == "file":
            hint = "choose another -o"
            raise FolderError(f"{self.url}: is an object, expected a folder", hint=hint)
        return []

    def lock_folder(self) -> AbstractContextManager[Url]:
        """Be the only writer until the block ends; yield the place to write to, with its holder.

        Raises:
            FolderError: another process writes there, or the lock is an object that is not ours.
        """
        return hold_lease(self.url)

    def check_held(self) -> None:
        """Raise FolderError if another run has taken the folder over."""
        check_held(self.url / LOCK_NAME)

    def check_new_file(self) -> None:
        """Raise nothing: an object needs no folder."""

    def remove_left_overs(self) -> None:
        """Remove nothing: an upload that breaks off leaves nothing."""

    def hold_spool_folder(self) -> AbstractContextManager[Path]:
        """Yield a folder of this machine for temporary files of a run that writes here."""
        return disk.temporary_folder()

    # Inputs

    def open_input(self, num_bytes: int) -> BinaryIO:
        """Open an object of a known size to look at a few places of it."""
        return open_object(self.url, num_bytes)

    def read_input(self) -> bytes | None:
        """Read a whole object."""
        return read_object(self.url)

    def read_input_head(self, num_bytes: int) -> bytes:
        """Read nothing: a request costs too much for what only serves a warning."""
        del num_bytes
        return b""

    def iter_input(self, start: int, end: int, version: object = None) -> Iterator[bytes]:
        """Read a range in pieces, the next ones already on their way; less where it ends.

        Args:
            version: of an object that is read as a whole, to compare its bytes with.
        """
        if version is not None:
            return iter_checked_object(self.url, end, str(version))
        return iter_object(self.url, start, end)

    def find_version(self) -> tuple[int, int | str]:
        """Return the size of an object as it is now, and what changes when it is written again."""
        return find_object(self.url)
