"""A local path, with the same methods as `RemotePlace`.

Files to read may have been written by somebody else (`mapping`). A file that is written appears
under its name when it is complete: a temporary file in the same folder is hashed while it is
written, fsynced and renamed, then the folder is fsynced. A crash at any moment leaves the old file
or none. BLAKE3 takes about 0.2 s per GiB on one core.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import LOCK_NAME, TEMP_PATTERN, HashingWriter
from seqpack_cli.files.failures import check_at_most
from seqpack_cli.files.local_locks import create_locked, hold_lock
from seqpack_cli.files.local_staging import hold_staging, move_in, remove_staging
from seqpack_cli.files.mapping import NO_FILE, look_at, naming_reads, open_regular
from seqpack_cli.limits import LIMITS


@dataclass(frozen=True)
class LocalPlace:
    """A local file or folder."""

    path: Path
    num_readers: ClassVar[int] = 1  # at once: more are not faster

    def find_real_name(self) -> str:
        """Return the path with links resolved, the same for every spelling."""
        return os.path.realpath(self.path)

    def is_link(self) -> bool:
        """Return whether it is a symbolic link."""
        return self.path.is_symlink()

    def exists(self) -> bool:
        """Return whether anything has this name, a broken link included.

        Raises:
            MachineError: the system refuses to look.
        """
        try:
            look_at(self.path)
        except FolderError:
            return False
        return True

    def check_size(self, num_bytes: int | None = None) -> int:
        """Return the size of a regular file, not a link.

        Raises:
            FolderError: it is missing, not a regular file, or not of the expected size.
        """
        with open_regular(self.path, num_bytes=num_bytes) as file:
            return os.fstat(file.fileno()).st_size

    def find_sizes(self) -> Callable[[str], int | None]:
        """Return a function from the name of a file in this folder to its size.

        The size is None if there is nothing, and NO_FILE for anything but a regular file. An object
        store lists all files at once, a disk is asked at each call.
        """

        def find_size(name: str) -> int | None:
            try:
                status = look_at(self.path / name)
            except FolderError:
                return None
            return status.st_size if stat.S_ISREG(status.st_mode) else NO_FILE

        return find_size

    def find_status(self) -> tuple[int, ...] | None:
        """Return numbers that change when this file is replaced; None in an object store.

        Raises:
            FolderError: it is missing.
        """
        status = look_at(self.path)
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def read(self, *, max_bytes: int) -> bytes:
        """Read a whole regular file of at most max_bytes."""
        with open_regular(self.path) as file:
            check_at_most(self.path, os.fstat(file.fileno()).st_size, max_bytes)
            with naming_reads(self.path):
                return file.read()

    def read_head(self, num_bytes: int) -> bytes:
        """Read the first bytes of a regular file that is not empty."""
        with open_regular(self.path) as file, naming_reads(self.path):
            return file.read(num_bytes)

    def read_tail(self, num_bytes: int) -> bytes:
        """Read the last bytes of a regular file, all of a shorter one."""
        with open_regular(self.path) as file, naming_reads(self.path):
            file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
            return file.read(num_bytes)

    def hash(self) -> str:
        """Return the BLAKE3 checksum of a whole regular file as hex."""
        with open_regular(self.path) as file, naming_reads(self.path):
            digest = blake3()
            while block := file.read(LIMITS.read_bytes):
                digest.update(block)
            return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        """Yield the path of a local copy to open: of a local file, its own path.

        Args:
            entry: the file's entry in a manifest, with `bytes` and `blake3`.
        """
        del entry
        return contextlib.nullcontext(self.path)

    def check_cache(self) -> None:
        """Raise OptionError if the cache is needed and configured wrongly."""

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        """Write a file that appears under its name only when the block ends without an error.

        Args:
            replace: False never replaces a file, even one that appeared during the block.

        Raises:
            MachineError: the disk is full, read-only, or fails.
        """
        temp = disk.name_temporary(self.path)
        try:
            with create_locked(temp, self.path) as file:
                yield HashingWriter(file, self.path)
                disk.sync_file(file, self.path)
                disk.rename(temp, self.path, replace=replace)
        except BaseException:
            with contextlib.suppress(MachineError):  # the first error is the one to report
                disk.remove_file(temp)
            raise

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove those files of this folder that exist."""
        for name in names:
            disk.remove_file(self.path / name)

    def make_folder(self) -> list[Path]:
        """Create the folder and its parents; return the new ones, the innermost first."""
        return disk.make_folder(self.path)

    def remove_folder(self) -> None:
        """Remove the folder if it is empty."""
        disk.remove_folders([self.path])

    @contextlib.contextmanager
    def lock_folder(self) -> Iterator[Path]:
        """Lock the folder against other writers until the block ends; yield the place to write to.

        The kernel releases the lock when its process dies, so a lock is never stale; the content of
        the file only tells other writers who holds it.

        Raises:
            FolderError: another process is writing there, or seqpack did not write the lock file.
        """
        with hold_lock(self.path / LOCK_NAME):
            yield self.path

    def check_held(self) -> None:
        """Raise FolderError if another run has taken the folder over: impossible on a disk."""

    def check_new_file(self) -> None:
        """Raise FolderError if the name is a link, or its folder does not exist."""
        if not self.path.parent.is_dir():
            hint = "create it, or choose another name"
            raise FolderError(f"{self.path.parent}: no such folder", hint=hint)
        if self.exists() and self.path.is_symlink():  # a name may be too long to look at
            raise FolderError(
                f"{self.path}: a symbolic link, expected a file or nothing",
                hint="choose another name",
            )

    def remove_left_overs(self) -> None:
        """Remove what killed writers of this file or folder left beside it."""
        begin = f".{self.path.name}."
        with disk.naming_writes(self.path):
            beside = self.path.parent.iterdir() if self.path.parent.is_dir() else ()
            found = [temp for temp in beside if temp.name.startswith(begin)]
        for temp in found:
            if not TEMP_PATTERN.fullmatch(temp.name):
                continue
            with contextlib.suppress(FolderError):  # its owner may just have removed it
                is_folder = stat.S_ISDIR(look_at(temp).st_mode)
                (remove_staging if is_folder else disk.remove_left_over)(temp)

    def hold_staging(self) -> AbstractContextManager[Path]:
        """Yield a local folder for files that will be here, to check them before anyone sees them.

        It lies beside this place, and is removed with what is left in it when the block ends.
        """
        return hold_staging(self.path)

    def move_in(self, staged: Path, *, replace: bool = True) -> None:
        """Publish a file, or a folder of files, that lies in the staging folder of this place.

        Args:
            replace: False never replaces a file; all files of an earlier folder are replaced.
        """
        move_in(staged, self.path, replace=replace)

    def hold_spool_folder(self) -> AbstractContextManager[Path]:
        """Yield a local folder for temporary files of a run that writes here: this folder."""
        return contextlib.nullcontext(self.path)
