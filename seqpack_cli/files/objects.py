"""Objects in an object store: their addresses, and requests to find, read, write and remove them.

fsspec and the packages behind it do the work, retries included. Access, endpoints and regions come
from their own settings (`AWS_…`, `GOOGLE_…`, `FSSPEC_…`, ~/.config/fsspec); seqpack has no options
for them. An object appears under its name when it is complete, or not at all.

A folder of objects has no lock. A run creates its `plan.json` only if there is none, and before
each change it looks whether that is still its own (`check_own`): one small request.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from seqpack_cli.errors import FolderError, MachineError, OptionError
from seqpack_cli.files.disk import naming_failures
from seqpack_cli.limits import LIMITS

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}  # by protocol
# Their puts appear as a whole, after size and checksum were compared.
OBJECT_STORES = (*PACKAGES, "az", "abfs", "abfss")
PLAN_NAME = "plan.json"  # of an unfinished run
# No cached listings: other machines write at the same time.
SETTINGS: dict[str, Any] = {"use_listings_cache": False}
# botocore's "standard" mode also retries dropped connections and 503, with growing pauses. s3fs
# retries around it: an object store that does not answer is an error after about a minute.
S3_SETTINGS: dict[str, Any] = {
    **SETTINGS,
    "config_kwargs": {
        "retries": {"mode": "standard", "max_attempts": 4},
        "connect_timeout": 10,
        "read_timeout": 30,
        # Each put has a CRC, over http too; a signed payload would cost as much as our own hash.
        "s3": {"payload_signing_enabled": False},
    },
}
AGAIN_HINT = "run the same command again when the object store answers"
ACCESS_HINT = "check the credentials and their permissions"
VERSION_MARK = "?versionId="  # s3fs cuts a key there, and would use the object of that name
REFUSED = "(?i)ConditionalRequestConflict|pre-?conditions?"
UNKNOWN_CONDITION = "NotImplemented|not implemented"  # some servers answer so
NUM_AHEAD = 3  # ranges requested ahead of the one in use
NUM_THREADS = 16  # of requests to remove objects


@functools.cache
def open_file_system(protocol: str) -> Any:
    """Open the file system of a protocol, once per process.

    Raises:
        MachineError: its package is not installed.
        OptionError: fsspec does not know the protocol.
    """
    package = "fsspec"
    try:
        import fsspec

        package = PACKAGES.get(protocol, "")
        with contextlib.suppress(ValueError):
            fsspec.get_filesystem_class(protocol)
        return fsspec.filesystem(protocol, **(S3_SETTINGS if package == "s3fs" else SETTINGS))
    except ImportError as error:
        if not package:
            raise MachineError(f"{protocol}://: {error}") from error
        message = f"{package} is not installed, {protocol}:// needs it"
        raise MachineError(message, hint=f"pip install {package}") from error
    except ValueError as error:
        raise OptionError(f"{protocol}://: {error}", hint="use a path, s3:// or gs://") from error


def naming_requests(url: object) -> AbstractContextManager[None]:
    """Turn a failure of the object store into an error that names the object.

    Each package raises its own exceptions, most of them not OSError.
    """

    def find_hint(error: Exception) -> str:
        is_denied = isinstance(error, PermissionError) or "Credential" in type(error).__name__
        return ACCESS_HINT if is_denied else AGAIN_HINT

    return naming_failures(url, missing=(FileNotFoundError,), others=Exception, find_hint=find_hint)


@dataclass(frozen=True, order=True)
class Url:
    """The address of an object, or of all objects below it, without a slash at the end.

    It has those methods of `pathlib.Path` that are needed. `run` is the URL of the plan of the run
    that writes there, in any of its processes, and its version: see `check_own`.
    """

    text: str
    run: tuple[str, str] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.text}/{name}", self.run)

    @property
    def protocol(self) -> str:
        """Return the part before `://`."""
        return self.text.partition("://")[0]

    @property
    def key(self) -> str:
        """Return the part after `://`: bucket and key."""
        return self.text.partition("://")[2]

    @property
    def name(self) -> str:
        """Return the last component of the key."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """Return the suffix of the last component, with its dot."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> Url:
        """Return the URL above; a bucket is its own parent."""
        head, _, _ = self.key.rpartition("/")
        return Url(f"{self.protocol}://{head}", self.run) if head else self

    def with_name(self, name: str) -> Url:
        """Return the URL with another last component."""
        return self.parent / name

    def resolve(self) -> Url:
        """Return self: there are no links and no working folder."""
        return self

    def is_symlink(self) -> bool:
        """Return False: there are no links."""
        return False

    def open_file_system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path of this object in it.

        Call only methods that take a path literally: `rm`, `mv`, `get`, `put`, `cat` and others
        expand globs and would change other objects (`tests/outer/test_s3.py`).

        Raises:
            OptionError: s3fs would cut the name.
        """
        if VERSION_MARK in self.key:
            raise OptionError(
                f"{self}: names a version of an object ({VERSION_MARK}), expected an object",
                hint="copy that version to another object",
            )
        with naming_requests(self):
            return open_file_system(self.protocol), self.key

    def find_status(self) -> dict[str, Any] | None:
        """Return the object's status, with `type` and `size`; None if there is nothing.

        Raises:
            MachineError: the object store refuses or fails.
        """
        system, key = self.open_file_system()
        with naming_requests(self):
            try:
                found: dict[str, Any] = system.info(key)
            except FileNotFoundError:
                return None
            return found

    def exists(self) -> bool:
        """Return whether there is an object of this name, or any below it."""
        return self.find_status() is not None

    def is_dir(self) -> bool:
        """Return whether there are objects below it."""
        status = self.find_status()
        return status is not None and status["type"] == "directory"

    def iterdir(self) -> Iterator[Url]:
        """Yield the URLs directly below it."""
        for name in self.list_files():
            yield self / name

    def list_files(self) -> dict[str, dict[str, Any]]:
        """Return the entries directly below it, by name, each with its `size`."""
        system, key = self.open_file_system()
        with naming_requests(self):
            try:
                entries = system.ls(key, detail=True)
            except FileNotFoundError:
                return {}
        # The listing includes the URL itself if it is an object or a folder marker.
        paths = {str(entry["name"]).strip("/"): entry for entry in entries}
        itself = key.strip("/")
        return {path.rpartition("/")[2]: entry for path, entry in paths.items() if path != itself}


AnyPath: TypeAlias = str | os.PathLike[str] | Url  # what a caller of the library passes


# Reading


def find_object(url: Url) -> tuple[int, str]:
    """Return an object's size, and a value that changes when it is written again.

    Raises:
        FolderError: there is no object of this name.
    """
    status = url.find_status()
    if status is None:
        raise FolderError(f"{url}: missing")
    if status["type"] != "file":
        raise FolderError(f"{url}: not a regular file")
    return int(status["size"]), read_version(status)


def read_version(status: dict[str, Any]) -> str:
    """Return the part of an object's status that changes when it is written again."""
    names = ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime", "created")
    found = next((status[name] for name in names if status.get(name)), "")
    if isinstance(found, datetime):  # in listings some object stores give seconds
        found = found.timestamp()
    return str(found).strip('"')


def read_object(url: Url) -> bytes:
    """Read a whole object."""
    return b"".join(iter_object(url, 0, find_object(url)[0]))


def iter_object(url: Url, start: int, end: int) -> Iterator[bytes]:
    """Yield a range of an object in pieces, requested ahead; it may end early, with the object."""
    system, key = url.open_file_system()
    size = LIMITS.range_bytes

    def read(first: int) -> bytes:
        with naming_requests(url):
            found: bytes = system.cat_file(key, start=first, end=min(first + size, end))
            return found

    num_threads = NUM_AHEAD if end - start > size else 1
    yield from map_ahead(read, range(start, end, size), num_threads=num_threads)


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_threads: int
) -> Generator[Result, None, None]:
    """Call a function on every item, in threads, and yield the results in the items' order.

    num_threads=1 uses the calling thread. At most num_threads + 1 results are kept ahead. The
    threads end with the generator: close it if an exception's traceback would keep it.
    """
    if num_threads == 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_threads) as pool:
        ahead: deque[Future[Result]] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > num_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


# Writing


def check_own(url: Url) -> None:
    """Check that the plan of the run which writes an object is still its own.

    Raises:
        FolderError: another run has replaced or removed the plan.
    """
    if url.run is None:
        return
    plan, version = Url(url.run[0]), url.run[1]
    status = plan.find_status()
    if status is None or read_version(status) != version:
        raise FolderError(
            f"{plan.parent}: another run has taken this place over",
            hint="wait until it ends, or choose another -o",
        )


def upload(path: Path, url: Url) -> None:
    """Upload a local file; the object appears when it is complete.

    Raises:
        FolderError: another run has taken the place over.
        MachineError: the object store refuses it.
    """
    check_own(url)
    system, key = url.open_file_system()
    with naming_requests(url):
        if url.protocol in OBJECT_STORES:
            system.put_file(str(path), key)
            return
        temporary = url.with_name(f".{url.name}.{os.getpid()}.tmp").key
        system.put_file(str(path), temporary)
        system.cp_file(temporary, key)  # `mv` would expand globs in the name
        system.rm_file(temporary)


def create_object(url: Url, data: bytes) -> bool:
    """Write a small object if there is none of its name; return whether there was none.

    The result may be False after a put whose answer was lost: read the object to know.

    Raises:
        FolderError: there is no such bucket.
    """
    system, key = url.open_file_system()
    with naming_requests(url):
        try:
            if url.protocol in PACKAGES:
                try:
                    system.pipe_file(key, data, mode="create")
                    return True
                except OSError as error:
                    if isinstance(error, FileExistsError) or re.search(REFUSED, str(error)):
                        return False
                    if not re.search(UNKNOWN_CONDITION, str(error)):
                        raise
            if url.exists():
                return False
            system.pipe_file(key, data)
        except FileNotFoundError as error:  # objects need no folder, so the bucket is missing
            raise FolderError(
                f"{url.parent}: no such bucket", hint="create it, or choose another -o"
            ) from error
    return True


def remove_objects(urls: Sequence[Url]) -> None:
    """Remove those objects of one folder that exist.

    Raises:
        FolderError: another run has taken the folder over.
        MachineError: the object store refuses or fails; some of them may be removed.
    """

    def remove(url: Url) -> None:
        system, key = url.open_file_system()
        with naming_requests(url), contextlib.suppress(FileNotFoundError):
            system.rm_file(key)  # `rm` would expand globs in the name

    for url in urls[:1]:
        check_own(url)
    for _ in map_ahead(remove, urls, num_threads=NUM_THREADS if len(urls) > 1 else 1):
        pass
