"""Whole objects: read, hashed, streamed, uploaded, removed.

An upload appears under its name only when it is whole: object stores promise that of a put and of
a multipart upload; anywhere else it goes to a temporary name first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.execution import map_ahead
from seqpack_cli.remote.file_systems import AGAIN_HINT, naming_failures
from seqpack_cli.remote.url import Url

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
S3 = ("s3", "s3a")  # s3fs passes If-Match on
CREATING = (*S3, "gs", "gcs")  # whose packages know mode="create" of files too
RANGE_BYTES = 8 << 20  # asked for at a time: a request costs 20 to 50 ms, whatever it brings
NUM_AHEAD = 3  # ranges that are on their way while one is used
NUM_REMOVING = 16  # requests on their way: one call for many objects hides what was not removed
REFUSED = re.compile("ConditionalRequestConflict|pre-?conditions?", re.IGNORECASE)
UNKNOWN_CONDITION = re.compile("NotImplemented|not implemented")  # by this server
MD5 = re.compile("[0-9a-f]{32}")
SEEK_BYTES = 64 << 10  # read at least where only a few bytes are looked at


def read_object(url: Url) -> bytes:
    """Read a whole object, checked as `iter_checked_object` does."""
    status = _find_object(url)
    return b"".join(iter_checked_object(url, int(status["size"]), read_version(status)))


def read_start(url: Url, num_bytes: int) -> bytes:
    """Read an object up to so many bytes, with one request."""
    system, key = url.open_file_system()
    with naming_failures(url):
        found: bytes = system.cat_file(key, start=0, end=num_bytes)
        return found


def iter_object(url: Url, start: int, end: int) -> Iterator[bytes]:
    """Stream a range of an object, the next pieces already on their way; fewer where it ends."""
    system, key = url.open_file_system()

    def read(first: int) -> bytes:
        with naming_failures(url):
            found: bytes = system.cat_file(key, start=first, end=min(first + RANGE_BYTES, end))
            return found

    yield from map_ahead(read, range(start, end, RANGE_BYTES), num_threads=NUM_AHEAD)


def iter_checked_object(url: Url, num_bytes: int, version: str) -> Iterator[bytes]:
    """Stream a whole object, and compare its bytes with its ETag where nothing else would.

    Over https damage on the way cannot stay unnoticed. Over http it can, and no store has checksums
    for ranges of an object; but the ETag of one put is the MD5 of its content, unless a key of the
    user's encrypts it. MD5 costs about 1.5 s a GiB.

    Args:
        version: as `read_version` gives it.

    Raises:
        MachineError: other bytes came than were put there.
    """
    pieces = iter_object(url, 0, num_bytes)
    if not (MD5.fullmatch(version) and _is_plain(url)):
        yield from pieces
        return
    digest = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != version and not _has_own_key(url):
        raise MachineError(
            f"{url}: damaged on the way, MD5 {digest.hexdigest()}, expected {version}",
            hint="run the same command again; over https this is noticed at once",
        )


def _is_plain(url: Url) -> bool:
    system, _ = url.open_file_system()
    return url.protocol in S3 and str(system.s3.meta.endpoint_url).startswith("http://")


def _has_own_key(url: Url) -> bool:
    """Say whether an object is encrypted in a way that makes its ETag no MD5 of the content."""
    system, key = url.open_file_system()
    bucket, _, name = key.partition("/")
    with naming_failures(url):
        status = system.call_s3("head_object", Bucket=bucket, Key=name)
    encryption = str(status.get("ServerSideEncryption", ""))
    return "kms" in encryption or "SSECustomerAlgorithm" in status


def open_object(url: Url, num_bytes: int) -> BinaryIO:
    """Open an object of a known size to look at a few places of it."""
    system, key = url.open_file_system()
    with naming_failures(url):
        file = system.open(key, "rb", cache_type="none", size=num_bytes)
        return io.BufferedReader(file, SEEK_BYTES)


def hash_object(url: Url) -> str:
    """Give the sha256 of a whole object as hex."""
    digest = hashlib.sha256()
    for block in iter_object(url, 0, int(_find_object(url)["size"])):
        digest.update(block)
    return digest.hexdigest()


def _find_object(url: Url) -> dict[str, Any]:
    status = url.find_status()
    if status is None or status["type"] != "file":
        raise FolderError(f"{url}: missing")
    return status


def upload(path: Path, url: Url) -> None:
    """Put a local file under a name, where it appears when it is whole.

    Raises:
        MachineError: the store did not take it, or holds another number of bytes.
    """
    system, key = url.open_file_system()
    if url.protocol in OBJECT_STORES:  # which check the size and a sum before they answer
        with naming_failures(url):
            system.put_file(str(path), key)
        return
    temporary = url.with_name(f".{url.name}.{os.getpid()}.tmp")
    with naming_failures(url):
        system.put_file(str(path), temporary.key)
    _check_size(temporary, path.stat().st_size)
    with naming_failures(url):
        _move(system, temporary.key, key)


def upload_over(path: Path, url: Url, tag: str | None) -> bool:
    """Put a local file under a name if the object there has this tag; say whether it was so.

    Args:
        tag: of `find_tag`; None if there is none.
    """
    if url.protocol not in CREATING:
        upload(path, url)
        return True
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.put_file, str(path), key), **_match(url, tag))


def _move(system: Any, key: str, new_key: str) -> None:
    """Rename an object; fsspec's own way copies it, and takes names for globs."""
    from fsspec import AbstractFileSystem

    if type(system).mv is not AbstractFileSystem.mv:
        system.mv(key, new_key)
        return
    system.cp_file(key, new_key)
    system.rm_file(key)


def write_object(url: Url, data: bytes) -> None:
    """Put a small object under a name."""
    system, key = url.open_file_system()
    with naming_failures(url):
        system.pipe_file(key, data)


def create_object(url: Url, data: bytes) -> bool:
    """Put a small object under a name unless there is one; say whether there was none.

    False too where an answer was lost and the put tried again: who asks reads what is there.
    """
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.pipe_file, key, data), mode="create")


def replace_object(url: Url, data: bytes, tag: str) -> bool:
    """Put a small object in the place of one that has this tag; say whether it still had it."""
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.pipe_file, key, data), **_match(url, tag))


def _match(url: Url, tag: str | None) -> dict[str, str]:
    """Return the condition that an object is the one with a tag, where that can be asked."""
    if tag is None:
        return {"mode": "create"}
    return {"IfMatch": tag} if url.protocol in S3 else {}


def _put_if(url: Url, put: Callable[..., Any], **condition: str) -> bool:
    """Put an object under a condition; say whether it held. A store without conditions puts it."""
    with naming_failures(url):
        try:
            put(**condition)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if "IfMatch" in condition:
                return False  # it has been removed
            raise
        except OSError as error:
            if REFUSED.search(str(error)):
                return False
            if not UNKNOWN_CONDITION.search(str(error)):
                raise
            put()
        return True


def remove_objects(urls: Iterable[Url]) -> None:
    """Remove objects of one store, those that are there."""

    def remove(url: Url) -> None:
        system, key = url.open_file_system()
        with naming_failures(url), contextlib.suppress(FileNotFoundError):
            system.rm_file(key)

    urls = list(urls)
    num_threads = NUM_REMOVING if len(urls) > 1 and urls[0].protocol in OBJECT_STORES else 1
    for _ in map_ahead(remove, urls, num_threads=num_threads):
        pass


def find_tag(url: Url) -> str | None:
    """Return what the store calls the content of an object; None if there is no object."""
    status = url.find_status()
    if status is None or status["type"] != "file":
        return None
    return str(status.get("ETag", ""))


def find_version(url: Url) -> tuple[int, str]:
    """Give an object's size, and what changes when it is written again."""
    system, key = url.open_file_system()
    with naming_failures(url):
        status = system.info(key)
        return int(status["size"]), read_version(status)


def read_version(status: dict[str, Any]) -> str:
    """Give what the store says of an object that changes when it is written again."""
    names = ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime", "created")
    found = next((status[name] for name in names if status.get(name)), "")
    if isinstance(found, datetime):  # listings of some stores have seconds
        found = found.timestamp()
    return str(found).strip('"')


def _check_size(url: Url, num_bytes: int) -> None:
    status = url.find_status()
    if status is None or status["size"] != num_bytes:
        found = "nothing" if status is None else f"{status['size']:,} bytes"
        raise MachineError(
            f"{url}: holds {found}, {num_bytes:,} bytes were put there", hint=AGAIN_HINT
        )
