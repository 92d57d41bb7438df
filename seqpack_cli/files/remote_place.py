"""A place in an object store, with the same methods as `LocalPlace`, which documents them.

An object is complete or absent: it is uploaded from a local file that is written and hashed first,
so that an upload can be tried again. The lock of a folder is a lease, and every change of an object
below it checks the lease first (`held`). Objects to map become local files (`object_cache`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3

from seqpack_cli.errors import FolderError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import LOCK_NAME, HashingWriter
from seqpack_cli.files.failures import check_same_size
from seqpack_cli.files.held import remove_held, upload_held
from seqpack_cli.files.lease import check_held, hold_lease
from seqpack_cli.files.mapping import NO_FILE
from seqpack_cli.files.object_cache import find_cache_limit, local_file
from seqpack_cli.files.objects import (
    find_object,
    iter_object,
    read_object,
)
from seqpack_cli.files.url import Url


@dataclass(frozen=True)
class RemotePlace:
    """An object, or the objects below a URL."""

    url: Url
    num_readers: ClassVar[int] = 16  # at once: a request mostly waits

    def find_real_name(self) -> str:
        return str(self.url)

    def is_link(self) -> bool:
        """Return False: an object store has no links."""
        return False

    def exists(self) -> bool:
        return self.url.exists()

    def check_size(self, num_bytes: int | None = None) -> int:
        size, _ = find_object(self.url)
        check_same_size(self.url, size, num_bytes)
        return size

    def find_sizes(self) -> Callable[[str], int | None]:
        sizes = {
            name: int(found["size"] or 0) if found["type"] == "file" else NO_FILE
            for name, found in self.url.list_files().items()
        }
        return sizes.get

    def find_status(self) -> None:
        return None  # `open_copy` compares an object with its checksum instead

    def read(self, *, max_bytes: int) -> bytes:
        return read_object(self.url, max_bytes=max_bytes)

    def read_head(self, num_bytes: int) -> bytes:
        return b"".join(iter_object(self.url, 0, num_bytes))

    def read_tail(self, num_bytes: int) -> bytes:
        size = self.check_size()
        return b"".join(iter_object(self.url, max(0, size - num_bytes), size))

    def hash(self) -> str:
        digest = blake3()
        for block in iter_object(self.url, 0, self.check_size()):
            digest.update(block)
        return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        return local_file(self.url, entry)

    def check_cache(self) -> None:
        find_cache_limit()

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        del replace  # an upload always replaces
        with disk.temporary_folder() as folder:
            path = folder / self.url.name
            with disk.create_file(path) as file:
                yield HashingWriter(file, self.url)
            upload_held(path, self.url)

    def remove_files(self, names: Iterable[str]) -> None:
        if urls := [self.url / name for name in names]:
            remove_held(urls)

    def make_folder(self) -> list[Path]:
        # Nothing to create, but an object may have the name.
        status = self.url.find_status()
        if status is not None and status["type"] == "file":
            hint = "choose another -o"
            raise FolderError(f"{self.url}: an object, expected a folder", hint=hint)
        return []

    def remove_folder(self) -> None:
        pass  # an empty folder does not exist

    def lock_folder(self) -> AbstractContextManager[Url]:
        return hold_lease(self.url)

    def check_held(self) -> None:
        check_held(self.url / LOCK_NAME)

    def check_new_file(self) -> None:
        pass  # an object needs no folder

    def remove_left_overs(self) -> None:
        pass  # an interrupted upload leaves nothing

    def hold_staging(self) -> AbstractContextManager[Path]:
        return disk.temporary_folder()

    def move_in(self, staged: Path, *, replace: bool = True) -> None:
        del replace  # an upload always replaces
        if not staged.is_dir():
            upload_held(staged, self.url)
            return
        self.remove_files(self.url.list_files())  # a mix of old and new files would be worse
        for path in sorted(staged.iterdir()):
            upload_held(path, self.url / path.name)

    def hold_spool_folder(self) -> AbstractContextManager[Path]:
        return disk.temporary_folder()
