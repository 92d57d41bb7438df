"""A path of this machine: what `places.at` gives for it, with the verbs of `RemotePlace`.

What is read may be a stranger's (`mapping`). A file that is written appears under its name when it
is whole: a temporary file in the same folder, fsynced and hashed on the way, then renamed, then the
folder fsynced. Whatever stops the machine leaves the old file or none. BLAKE3 costs about 0.2 s a
GiB on one core.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import LOCK_NAME, TEMP_PATTERN, HashingWriter
from seqpack_cli.files.failures import check_at_most, foreign_lock_error, in_use_error
from seqpack_cli.files.mapping import NO_FILE, look_at, naming_reads, open_regular

# Of a lock: host and pid, or as much of them as a kill left.
OWNER = re.compile(rb'[^\s{}<>"]*( \d*)?')
BLOCK_BYTES = 1 << 20  # read at a time: they stay in the cache


@dataclass(frozen=True)
class LocalPlace:
    """A file or folder of this machine."""

    path: Path
    num_readers: ClassVar[int] = 1  # at once: more gain nothing

    def find_real_name(self) -> str:
        """Return the name without links, the same however the place is spelled."""
        return os.path.realpath(self.path)

    def exists(self) -> bool:
        """Say whether there is anything under the name, a link to nowhere too.

        Raises:
            MachineError: the system does not say.
        """
        try:
            look_at(self.path)
        except FolderError:
            return False
        return True

    def check_size(self, num_bytes: int | None = None) -> int:
        """Return the size of a plain file, not a link.

        Raises:
            FolderError: it is missing, something else, or of another size than the expected one.
        """
        with open_regular(self.path, num_bytes=num_bytes) as file:
            return os.fstat(file.fileno()).st_size

    def find_sizes(self) -> Callable[[str], int | None]:
        """Return what finds the size of a file right below: None if there is nothing.

        It is NO_FILE of what is no plain file. A store lists all files now, this looks when called.
        """

        def find_size(name: str) -> int | None:
            try:
                status = look_at(self.path / name)
            except FolderError:
                return None
            return status.st_size if stat.S_ISREG(status.st_mode) else NO_FILE

        return find_size

    def read(self, *, max_bytes: int) -> bytes:
        """Read a whole plain file, if it is no larger than it may be."""
        with open_regular(self.path) as file:
            check_at_most(self.path, os.fstat(file.fileno()).st_size, max_bytes)
            with naming_reads(self.path):
                return file.read()

    def read_head(self, num_bytes: int) -> bytes:
        """Read the first bytes of a plain file that is not empty."""
        with open_regular(self.path) as file, naming_reads(self.path):
            return file.read(num_bytes)

    def hash(self) -> str:
        """Return the BLAKE3 checksum of a whole plain file as hex."""
        with open_regular(self.path) as file, naming_reads(self.path):
            digest = blake3()
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
            return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        """Yield the local file to open: the file itself.

        Args:
            entry: of a manifest, with `bytes` and `blake3`.
        """
        del entry
        return contextlib.nullcontext(self.path)

    def check_cache(self) -> None:
        """Raise OptionError, before anything is read, if a cache is needed and is set wrongly."""

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        """Write a file that appears under its name only when the block ends well.

        Args:
            replace: False never replaces a file, even one that appeared during the block.

        Raises:
            MachineError: the disk is full, read-only, or fails.
        """
        temp = disk.name_temporary(self.path)
        try:
            with disk.create_file(temp) as file:
                with contextlib.suppress(MachineError):  # a file system without locks
                    disk.try_lock(file, self.path)
                yield HashingWriter(file, self.path)
                disk.sync_file(file, self.path)
                disk.rename(temp, self.path, replace=replace)
        except BaseException:
            with contextlib.suppress(MachineError):  # what stopped the block is the error
                disk.remove_file(temp)
            raise

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files of this folder, those that are there."""
        for name in names:
            disk.remove_file(self.path / name)

    def make_folder(self) -> list[Path]:
        """Make the folder and those above it; return the new ones, the innermost first."""
        return disk.make_folder(self.path)

    @contextlib.contextmanager
    def lock_folder(self) -> Iterator[Path]:
        """Be the only writer of the folder until the block ends; yield the place to write to.

        The kernel lets go of the lock when its process dies, so nothing stale is left to break; the
        file only tells the next writer who holds it.

        Raises:
            FolderError: another process writes there, or the lock is a file that is not ours.
        """
        path = self.path / LOCK_NAME
        with _open_locked(path) as file:
            try:
                file.truncate(0)
                disk.write_all(file, f"{platform.node()} {os.getpid()}".encode(), path)
                yield self.path
            finally:
                with contextlib.suppress(MachineError):  # it is the lock that counts, not the file
                    disk.remove_file(path)

    def check_held(self) -> None:
        """Raise FolderError if another run has taken the folder over: no kernel lets it."""

    def check_new_file(self) -> None:
        """Raise FolderError unless a file can be made here: no link, in a folder that is there."""
        if not self.path.parent.is_dir():
            hint = "create it, or choose another name"
            raise FolderError(f"{self.path.parent}: no such folder", hint=hint)
        if self.path.is_symlink():
            raise FolderError(
                f"{self.path}: a symbolic link, expected a file or nothing",
                hint="choose another name",
            )

    def remove_left_overs(self) -> None:
        """Remove what killed writers of the file left in its folder."""
        begin = f".{self.path.name}."
        with disk.naming_writes(self.path):
            found = [temp for temp in self.path.parent.iterdir() if temp.name.startswith(begin)]
        for temp in found:
            if TEMP_PATTERN.fullmatch(temp.name):
                disk.remove_left_over(temp)

    def hold_spool_folder(self) -> AbstractContextManager[Path]:
        """Yield a folder of this machine for temporary files of a run that writes here: itself."""
        return contextlib.nullcontext(self.path)


def _open_locked(path: Path) -> FileIO:
    while True:
        try:
            file = disk.open_shared(path)
        except MachineError as error:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise foreign_lock_error(path) from error
            raise
        is_locked = disk.try_lock(file, path)
        owner = file.read(200)
        if is_locked and not OWNER.fullmatch(owner):
            file.close()
            raise foreign_lock_error(path)
        if not is_locked:
            file.close()
            fields = owner.decode(errors="replace").split()
            host, pid = fields if len(fields) == 2 else ("unknown", "unknown")
            raise in_use_error(path.parent, f"process {pid} on {host} is writing")
        with contextlib.suppress(FileNotFoundError):  # its last owner has just removed it
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()
