"""Paths and URLs, and one set of verbs for both: `at(place).read(max_bytes=9)`.

A `Place` is a path or a URL; `parse_place` reads what a user wrote. This is the only module that
asks which of the two a place is. Files to read may have been written by somebody else (`mapping`).
A file that is written appears under its name when it is complete: a temporary file beside it is
hashed while it is written (0.2 s per GiB on one core), fsynced and renamed, then the folder is
fsynced. For an object it lies on this machine and is uploaded.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError, OptionError, mask_secrets, quote
from seqpack_cli.files import disk
from seqpack_cli.files.cache import local_file, remove_damaged
from seqpack_cli.files.disk import TEMP_PATTERN, HashingWriter
from seqpack_cli.files.locks import LOCK_NAME, create_locked, hold_lock, remove_left_over
from seqpack_cli.files.mapping import check_same_size, look_at, naming_reads, open_regular
from seqpack_cli.files.objects import (
    PACKAGES,
    PLAN_NAME,
    Url,
    check_at_most,
    check_own,
    create_object,
    find_object,
    iter_object,
    read_object,
    remove_objects,
    upload,
)
from seqpack_cli.limits import LIMITS

Place: TypeAlias = Path | Url
AnyPath: TypeAlias = str | os.PathLike[str] | Url  # what a caller of the library passes
URL_PATTERN = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.DOTALL | re.IGNORECASE)
# A misspelled URL: as a path it would create a folder such as `s3:`.
MISSPELLED = re.compile(r"(file|s3a?|gs|gcs|memory|https?|[a-z0-9]+:):", re.IGNORECASE)
SQUEEZED = re.compile(r"(file|s3a?|gs|gcs|memory|https?):/(?!/)")  # a URL that became a Path
URL_HINT = "write s3://bucket/name"
KEYS_HINT = "remove it; access keys go into environment variables such as AWS_ACCESS_KEY_ID"
LOCAL_PROTOCOLS = ("file", "local")
WEB_PROTOCOLS = ("http", "https", "ftp")
NO_FILE = -1  # instead of a size, of anything that is not a regular file
CreateFile = Callable[[str], HashingWriter]


def is_url(text: str) -> bool:
    """Return whether a text is a URL, `file://` included."""
    return "://" in text and URL_PATTERN.fullmatch(text) is not None


def split_url(text: str) -> tuple[str | None, str]:
    """Return the protocol of a URL in lower case and the rest; (None, text) if it is no URL."""
    match = URL_PATTERN.fullmatch(text)
    return (None, text) if match is None else (match[1].lower(), match[2])


def parse_place(name: AnyPath) -> Place:
    """Return the path or URL that a caller names; `file://` names a path.

    Raises:
        OptionError: the URL names nothing in an object store, or a path looks like a URL.

    >>> parse_place("s3://bucket/tokens/")
    Url(text='s3://bucket/tokens')
    >>> parse_place("file:///tokens").name
    'tokens'
    """
    if isinstance(name, Url):
        return name
    text = os.fspath(name)
    if not text:
        raise OptionError("the path is empty", hint="pass . for the current folder")
    if "\0" in text:
        raise OptionError(f"{quote(text)}: holds a null character, which no path has")
    check_address(text)
    protocol, key = split_url(text)
    if protocol is None:
        if isinstance(name, str) and MISSPELLED.match(text.strip()):
            raise OptionError(f"{text}: neither a path nor a URL", hint=f"{URL_HINT} or ./{text}")
        if SQUEEZED.match(text):
            raise OptionError(f"{text}: a Path cannot hold a URL", hint="pass the URL as a str")
        return Path(text)
    if protocol in LOCAL_PROTOCOLS:
        if not key.removeprefix("localhost").startswith("/"):
            raise OptionError(f"{text}: not on this machine", hint="write file:///folder/name")
        return Path(key.removeprefix("localhost"))
    parts = key.rstrip("/").split("/")
    if {"", ".", ".."} & set(parts):
        raise OptionError(f"{text}: not an address in an object store", hint=URL_HINT)
    return Url(f"{protocol}://{'/'.join(parts)}")


def check_address(text: str) -> None:
    """Raise OptionError for a URL of the web, or with a secret, which would be in the manifest."""
    if split_url(text)[0] in WEB_PROTOCOLS:
        raise OptionError(f"{text}: web addresses are not supported", hint="download the file")
    if is_url(text) and mask_secrets(text) != text:
        raise OptionError(f"{text}: contains a password or signature", hint=KEYS_HINT)


def find_local_name(name: str) -> str:
    """Return the path of a `file://` URL, and any other name unchanged."""
    return str(parse_place(name)) if split_url(name)[0] in LOCAL_PROTOCOLS else name


def is_shared(place: str | Place) -> bool:
    """Return whether other processes can see a place: all but `memory://`."""
    return not str(place).startswith("memory://")


def spell_place(place: Place, folder: Place) -> str:
    """Return how a folder refers to a place: by relative path, or by URL on another system."""
    if isinstance(place, Path):
        path, is_here = place.resolve(), isinstance(folder, Path)
        return os.path.relpath(path, str(folder.resolve())) if is_here else f"file://{path}"
    bucket, _, key = place.key.partition("/")
    beside = f"{place.protocol}://{bucket}/"
    if str(folder).startswith(beside):
        return posixpath.relpath(key, str(folder).removeprefix(beside))
    return str(place)


def find_place(folder: Place, spelled: str) -> Place:
    """Return the place that a folder refers to: the inverse of `spell_place`."""
    if is_url(spelled):
        place = parse_place(spelled)
        known = (*PACKAGES, None, split_url(str(folder))[0])
        if split_url(str(place))[0] not in known:
            # Somebody else may have written the folder: it must not make us open any address.
            raise OptionError(f"{folder}: refers to {place}, expected a path, s3:// or gs://")
        return place
    if isinstance(folder, Path):
        return (folder.resolve() / spelled).resolve()
    bucket, _, key = folder.key.partition("/")
    inside = posixpath.normpath(posixpath.join("/", key, spelled))  # never above the bucket
    return parse_place(f"{folder.protocol}://{bucket}{inside}")


def suggest_name(place: Place) -> str:
    """Return a question that names the nearest neighbour of a path that does not exist, or ""."""
    if isinstance(place, Url):
        return ""
    with contextlib.suppress(OSError):
        near = difflib.get_close_matches(place.name, os.listdir(place.parent), 1)  # noqa: PTH208
        return "".join(f"; did you mean {place.with_name(name)}?" for name in near)
    return ""


@dataclass(frozen=True)
class LocalPlace:
    """A local file or folder."""

    path: Path
    num_readers: ClassVar[int] = 1  # at once: more are not faster
    has_lock: ClassVar[bool] = True  # whether a run holds its folder against all others

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
        with open_regular(self.path) as file, naming_reads(self.path):
            check_at_most(self.path, os.fstat(file.fileno()).st_size, max_bytes)
            return file.read()

    def read_some(self, num_bytes: int, *, at_end: bool = False) -> bytes:
        """Read the first or the last bytes of a regular file, all of a shorter one."""
        with open_regular(self.path) as file, naming_reads(self.path):
            if at_end:
                file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
            return file.read(num_bytes)

    def hash(self) -> str:
        """Return the BLAKE3 checksum of a whole regular file as hex."""
        digest = blake3()
        with open_regular(self.path) as file, naming_reads(self.path):
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

    def check_copies(self, entries: Iterable[dict[str, Any]]) -> None:
        """Hash the local copies of files of this folder again, if it is in an object store."""

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        """Write a file that appears under its name only when the block ends without an error.

        Args:
            replace: False never replaces a file, even one that appeared during the block.

        Raises:
            MachineError: the disk is full, read-only, or fails.
        """
        with LocalPlace(self.path.parent).temporary_files() as create:
            yield (file := create(self.path.name))
            self.move_in(file, replace=replace)

    @contextlib.contextmanager
    def temporary_files(self) -> Iterator[CreateFile]:
        """Yield a function that creates temporary files for names of this folder.

        They lie beside those names, or on this machine for an object store, and are removed when
        the block ends, unless `move_in` has published them.
        """
        with _temporary_files(self.path, self.path) as create:
            yield create

    def move_in(self, file: HashingWriter, *, replace: bool = True) -> None:
        """Publish a complete file of `temporary_files` here; see `publish`."""
        file.sync()
        disk.rename(file.temporary, self.path, replace=replace)
        file.is_moved = True

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

    def lock_folder(self) -> AbstractContextManager[None]:
        """Lock the folder against other writers until the block ends; an object store has no locks.

        Raises:
            FolderError: another process is writing there, or seqpack did not write the lock file.
        """
        return hold_lock(self.path / LOCK_NAME)

    def begin_run(self, plan: bytes, *, replace: bool) -> Place | None:
        """Write the plan of a run into this folder; return the place to write its files to.

        Args:
            replace: False if no plan was found here.

        Returns:
            The folder; None if another run has written a plan to an object store meanwhile.
        """
        del replace  # the folder is locked
        with LocalPlace(self.path / PLAN_NAME).publish() as file:
            file.write(plan)
        return self.path

    def check_own(self) -> None:
        """Raise FolderError if another run has taken this folder over, in an object store."""

    def check_new_file(self) -> None:
        """Raise FolderError if the name is a link, or its folder does not exist."""
        if not self.path.parent.is_dir():
            missing = self.path.parent
            hint = "create it, or choose another name"
            raise FolderError(f"{missing}: no such folder{suggest_name(missing)}", hint=hint)
        if self.exists() and self.path.is_symlink():  # a name may be too long to look at
            raise FolderError(
                f"{self.path}: a symbolic link, expected a file or nothing",
                hint="choose another name",
            )

    def remove_left_overs(self, name: str | None = None) -> None:
        """Remove what killed writers left in this folder, of one file or of all."""
        with disk.naming_writes(self.path):
            found = [TEMP_PATTERN.fullmatch(path.name) for path in self.path.iterdir()]
        for temp in filter(None, found):
            if name in (None, temp[1]):
                with contextlib.suppress(FolderError):  # its owner may just have removed it
                    look_at(self.path / temp[0])
                    remove_left_over(self.path / temp[0])


@dataclass(frozen=True)
class RemotePlace:
    """An object, or the objects below a URL; `LocalPlace` documents the methods."""

    url: Url
    num_readers: ClassVar[int] = 16  # at once: a request mostly waits
    has_lock: ClassVar[bool] = False

    def find_real_name(self) -> str:
        return str(self.url)

    def is_link(self) -> bool:
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

    def read_some(self, num_bytes: int, *, at_end: bool = False) -> bytes:
        size = self.check_size() if at_end else num_bytes
        return b"".join(iter_object(self.url, max(0, size - num_bytes), size))

    def hash(self) -> str:
        digest = blake3()
        for block in iter_object(self.url, 0, self.check_size()):
            digest.update(block)
        return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        return local_file(self.url, entry)

    def check_copies(self, entries: Iterable[dict[str, Any]]) -> None:
        remove_damaged(entries)

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        with RemotePlace(self.url.parent).temporary_files() as create:
            yield (file := create(self.url.name))
            self.move_in(file, replace=replace)

    @contextlib.contextmanager
    def temporary_files(self) -> Iterator[CreateFile]:
        with disk.temporary_folder() as folder, _temporary_files(folder, self.url) as create:
            yield create

    def move_in(self, file: HashingWriter, *, replace: bool = True) -> None:
        del replace  # an upload always replaces
        upload(file.temporary, self.url)

    def remove_files(self, names: Iterable[str]) -> None:
        remove_objects([self.url / name for name in names])

    def make_folder(self) -> list[Path]:
        # Nothing to create, but an object may have the name.
        status = self.url.find_status()
        if status is not None and status["type"] == "file":
            hint = "choose another -o"
            raise FolderError(f"{self.url}: an object, expected a folder", hint=hint)
        return []

    def remove_folder(self) -> None:
        pass  # an empty folder does not exist

    def lock_folder(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def begin_run(self, plan: bytes, *, replace: bool) -> Place | None:
        path = self.url / PLAN_NAME
        if not replace and not create_object(path, plan) and read_object(path) != plan:
            return None
        if replace and read_object(path) != plan:  # with a failure, or to be overwritten
            with RemotePlace(path).publish() as file:
                file.write(plan)
        return Url(str(self.url), run=find_object(path)[1])

    def check_own(self) -> None:
        check_own(self.url / PLAN_NAME)

    def check_new_file(self) -> None:
        pass  # an object needs no folder

    def remove_left_overs(self, name: str | None = None) -> None:
        pass  # an interrupted upload leaves nothing


def at(place: Place) -> LocalPlace | RemotePlace:
    """Return the operations on a place: read, write, list, lock."""
    return RemotePlace(place) if isinstance(place, Url) else LocalPlace(place)


@contextlib.contextmanager
def _temporary_files(folder: Path, shown: Place) -> Iterator[CreateFile]:
    """Yield a function that creates temporary files in a folder; see `LocalPlace`.

    Args:
        shown: the folder that errors name.
    """
    made: list[HashingWriter] = []
    with contextlib.ExitStack() as files:

        def create(name: str) -> HashingWriter:
            temp = disk.name_temporary(folder / name)
            file = files.enter_context(create_locked(temp, folder / name))
            made.append(HashingWriter(file, shown / name, temp))
            return made[-1]

        try:
            yield create
        finally:
            for each in made:
                with contextlib.suppress(MachineError):  # the first error is the one to report
                    if not each.is_moved:
                        disk.remove_file(each.temporary)
