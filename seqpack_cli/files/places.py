"""Paths and URLs, and one set of verbs for both: `at(place).read(max_bytes=9)`.

A `Place` is a path or a URL; `parse_place` reads what a user wrote. This is the only module that
asks which of the two a place is. Files to read may have been written by somebody else (`mapping`).
A file that is written appears under its name when it is complete: a temporary file beside it is
hashed while it is written (0.2 s per GiB on one core), fsynced and renamed, then the folder is
fsynced. For an object it lies on this machine and is uploaded.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from seqpack_cli.errors import FolderError, MachineError, OptionError, mask_secrets
from seqpack_cli.files import disk
from seqpack_cli.files.cache import local_file, remove_damaged
from seqpack_cli.files.disk import (
    TEMP_PATTERN,
    HashingWriter,
    check_same_size,
    hash_file,
    look_at,
    naming_reads,
    open_regular,
)
from seqpack_cli.files.locks import LOCK_NAME, create_locked, hold_lock, remove_left_over
from seqpack_cli.files.objects import (
    PACKAGES,
    PLAN_NAME,
    AnyPath,
    Url,
    create_object,
    find_object,
    iter_object,
    read_object,
    remove_objects,
    upload,
)

Place: TypeAlias = Path | Url
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
    check_address(text)
    protocol, key = split_url(text)
    if protocol is None:
        if isinstance(name, str) and MISSPELLED.match(text.strip()):
            raise OptionError(f"{text}: neither a path nor a URL", hint=f"{URL_HINT} or ./{text}")
        if SQUEEZED.match(text):
            raise OptionError(f"{text}: a Path cannot hold a URL", hint="pass the URL as a str")
        return Path(text)
    if protocol in LOCAL_PROTOCOLS:
        if not key.startswith("/"):
            raise OptionError(f"{text}: not on this machine", hint="write file:///folder/name")
        return Path(key)
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


def find_real_name(place: Place) -> str:
    """Return a path with links resolved, the same for every spelling; links may go in a circle."""
    return os.path.realpath(place) if isinstance(place, Path) else str(place)


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


def suggest_name(place: str | Place) -> str:
    """Return a question that names the nearest neighbour of a path that does not exist, or ""."""
    import difflib

    path = Path(str(place))
    with contextlib.suppress(OSError, ValueError):  # a URL has no parent here
        beside = (each for each in path.parent.iterdir() if each.name != path.name)
        others = [each.name for each in beside if not (each / LOCK_NAME).exists()]
        near = difflib.get_close_matches(path.name, others, 1, 0.75)  # less: only the suffix
        return "".join(f"; did you mean {path.with_name(name)}?" for name in near)
    return ""


class At:
    """What can be done at a path or URL: read, write, list, lock."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @property
    def has_lock(self) -> bool:
        """Whether a run holds its folder against all others."""
        return isinstance(self.place, Path)

    @property
    def num_readers(self) -> int:
        """How many readers at once are worth it: a request to an object store mostly waits."""
        return 1 if isinstance(self.place, Path) else 16

    def exists(self) -> bool:
        """Return whether anything has this name, a broken link included.

        Raises:
            MachineError: the system or the object store refuses to look.
        """
        if isinstance(self.place, Url):
            return self.place.exists()
        with contextlib.suppress(FolderError):
            look_at(self.place)
            return True
        return False

    def check_size(self, num_bytes: int | None = None) -> int:
        """Return the size of a regular file, not a link.

        Raises:
            FolderError: it is missing, not a regular file, or not of the expected size.
        """
        if isinstance(self.place, Path):
            with open_regular(self.place) as file:
                size = os.fstat(file.fileno()).st_size
        else:
            size, _ = find_object(self.place)
        check_same_size(self.place, size, num_bytes)
        return size

    def find_sizes(self) -> Callable[[str], int | None]:
        """Return a function from the name of a file in this folder to its size.

        The size is None if there is nothing, and NO_FILE for anything but a regular file. An object
        store lists all files at once, a disk is asked at each call.
        """
        if isinstance(self.place, Url):
            found = self.place.list_files().items()
            is_file = {name: each["type"] == "file" for name, each in found}
            return {name: each["size"] if is_file[name] else NO_FILE for name, each in found}.get
        folder = self.place

        def find_size(name: str) -> int | None:
            with contextlib.suppress(FolderError):
                status = look_at(folder / name)
                return status.st_size if stat.S_ISREG(status.st_mode) else NO_FILE
            return None

        return find_size

    def find_status(self) -> tuple[int, ...] | None:
        """Return numbers that change when this file is replaced.

        None in an object store, where `open_copy` compares an object with its checksum instead.

        Raises:
            FolderError: it is missing.
        """
        if isinstance(self.place, Url):
            return None
        status = look_at(self.place)
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def read(self, *, max_bytes: int) -> bytes:
        """Read a whole regular file of at most max_bytes."""
        size = self.check_size()
        if size > max_bytes:
            raise FolderError(f"{self.place}: {size:,} bytes, expected at most {max_bytes:,}")
        return self.read_some(size)

    def read_some(self, num_bytes: int, *, at_end: bool = False) -> bytes:
        """Read the first or the last bytes of a regular file, all of a shorter one."""
        start = max(0, self.check_size() - num_bytes) if at_end else 0
        if isinstance(self.place, Url):
            return b"".join(iter_object(self.place, start, start + num_bytes))
        with open_regular(self.place) as file, naming_reads(self.place):
            file.seek(start)
            return file.read(num_bytes)

    def hash(self) -> str:
        """Return the BLAKE3 checksum of a whole regular file as hex."""
        if isinstance(self.place, Path):
            return hash_file(self.place)
        from blake3 import blake3

        digest = blake3()
        for block in iter_object(self.place, 0, self.check_size()):
            digest.update(block)
        return digest.hexdigest()

    def open_copy(self, entry: dict[str, Any]) -> AbstractContextManager[Path]:
        """Yield the path of a local copy to open: of a local file, its own path.

        Args:
            entry: the file's entry in a manifest, with `bytes` and `blake3`.
        """
        if isinstance(self.place, Url):
            return local_file(self.place, entry)
        return contextlib.nullcontext(self.place)

    def check_copies(self, entries: Iterable[dict[str, Any]]) -> None:
        """Hash the local copies of files of this folder again, if it is in an object store."""
        if isinstance(self.place, Url):
            remove_damaged(entries)

    # Writing

    @contextlib.contextmanager
    def publish(self, *, replace: bool = True) -> Iterator[HashingWriter]:
        """Write a file that appears under its name only when the block ends without an error.

        Args:
            replace: False never replaces a local file, even one that appeared during the block.

        Raises:
            MachineError: the disk is full, read-only, or fails.
        """
        with At(self.place.parent).temporary_files() as create:
            yield (file := create(self.place.name))
            self.move_in(file, replace=replace)

    @contextlib.contextmanager
    def temporary_files(self) -> Iterator[CreateFile]:
        """Yield a function that creates temporary files for names of this folder.

        They lie beside those names, or on this machine for an object store, and are removed when
        the block ends, unless `move_in` has published them.
        """
        made: list[HashingWriter] = []
        with contextlib.ExitStack() as stack:
            folder = self.place
            if isinstance(folder, Url):
                folder = stack.enter_context(disk.temporary_folder())

            def create(name: str) -> HashingWriter:
                temp = disk.name_temporary(folder / name)
                file = stack.enter_context(create_locked(temp, folder / name))
                made.append(HashingWriter(file, self.place / name, temp))
                return made[-1]

            try:
                yield create
            finally:
                for each in made:
                    with contextlib.suppress(MachineError):  # the first error is to be reported
                        if not each.is_moved:
                            disk.remove_file(each.temporary)

    def move_in(self, file: HashingWriter, *, replace: bool = True) -> None:
        """Publish a complete file of `temporary_files` here; see `publish`."""
        if isinstance(self.place, Url):
            upload(file.temporary, self.place)
            return
        file.sync()
        disk.rename(file.temporary, self.place, replace=replace)
        file.is_moved = True

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove those files of this folder that exist."""
        if isinstance(self.place, Url):
            remove_objects([self.place / name for name in names])
            return
        for name in names:
            disk.remove_file(self.place / name)

    def make_folder(self) -> list[Path]:
        """Create the folder and its parents; return the new ones, the innermost first."""
        if isinstance(self.place, Path):
            return disk.make_folder(self.place)
        status = self.place.find_status()  # nothing to create, but an object may have the name
        if status is not None and status["type"] == "file":
            hint = "choose another -o"
            raise FolderError(f"{self.place}: an object, expected a folder", hint=hint)
        return []

    def remove_folder(self) -> None:
        """Remove the folder if it is empty."""
        if isinstance(self.place, Path):
            disk.remove_folders([self.place])

    def lock_folder(self) -> AbstractContextManager[None]:
        """Lock the folder against other writers until the block ends; an object store has no locks.

        Raises:
            FolderError: another process is writing there, or seqpack did not write the lock file.
        """
        if isinstance(self.place, Url):
            return contextlib.nullcontext()
        return hold_lock(self.place / LOCK_NAME)

    def begin_run(self, plan: bytes, *, replace: bool) -> Place | None:
        """Write the plan of a run into this folder; return the place to write its files to.

        Args:
            replace: False if no plan was found here.

        Returns:
            The folder; None if another run has written a plan to an object store meanwhile.
        """
        path = self.place / PLAN_NAME
        is_written = isinstance(path, Url) and not replace and create_object(path, plan)
        if isinstance(path, Path) or (not is_written and read_object(path) != plan):
            if isinstance(path, Url) and not replace:
                return None
            with At(path).publish() as file:
                file.write(plan)
        if isinstance(path, Url):
            return Url(str(self.place), run=(str(path), find_object(path)[1]))
        return self.place

    def remove_left_overs(self, name: str | None = None) -> None:
        """Remove what killed writers left in this folder, of one file or folder or of all."""
        if isinstance(self.place, Url):
            return  # an interrupted upload leaves nothing
        with disk.naming_writes(self.place):
            found = [TEMP_PATTERN.fullmatch(path.name) for path in self.place.iterdir()]
        for temp in filter(None, found):
            if name in (None, temp[1]):
                with contextlib.suppress(FolderError):  # its owner may just have removed it
                    path = self.place / temp[0]
                    is_folder = stat.S_ISDIR(look_at(path).st_mode) and name is not None
                    for each in path.iterdir() if is_folder else [path]:
                        remove_left_over(each)
                    disk.remove_folders([path] if is_folder else [])


at = At
