"""Find, read, check, stream and remove objects; `puts` uploads them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.failures import check_at_most
from seqpack_cli.files.file_systems import ACCESS_HINT, naming_requests
from seqpack_cli.files.url import Url
from seqpack_cli.limits import LIMITS

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
S3 = ("s3", "s3a")  # s3fs passes If-Match on
NUM_AHEAD = 3  # ranges requested ahead of the one in use
NUM_REMOVED = 1000  # objects per request, the most that S3 accepts
NUM_THREADS = 16  # for removing objects one by one, in other object stores
MD5 = re.compile("[0-9a-f]{32}")


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


def read_object(url: Url, *, max_bytes: int | None = None) -> bytes:
    """Read a whole object of at most max_bytes, checked as `iter_checked_object` does."""
    size, version = find_object(url)
    if max_bytes is not None:
        check_at_most(url, size, max_bytes)
    return b"".join(iter_checked_object(url, size, version))


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


def iter_checked_object(url: Url, num_bytes: int, version: str) -> Iterator[bytes]:
    """Yield a whole object in pieces, and compare its bytes with its ETag over plain http.

    TLS notices damage during a download; http does not, and no object store has checksums for
    ranges of an object. The ETag of an object uploaded in one put is the MD5 of its content, unless
    it is encrypted with a key of the user's. MD5 takes 1.7 s per GiB.

    Args:
        version: from `find_object`.

    Raises:
        MachineError: the bytes do not match the ETag.
    """
    pieces = iter_object(url, 0, num_bytes)
    if not (MD5.fullmatch(version) and _is_plain(url)):
        yield from pieces
        return
    import hashlib

    digest = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != version and not _has_own_key(url):
        raise MachineError(
            f"{url}: damaged during the download, MD5 {digest.hexdigest()}, expected {version}",
            hint="run the same command again; if it fails again, use an https endpoint",
        )


def _is_plain(url: Url) -> bool:
    system, _ = url.open_file_system()
    return url.protocol in S3 and str(system.s3.meta.endpoint_url).startswith("http://")


def _has_own_key(url: Url) -> bool:
    """Return whether an object is encrypted such that its ETag is not the MD5 of its content."""
    system, key = url.open_file_system()
    bucket, _, name = key.partition("/")
    with naming_requests(url):
        status = system.call_s3("head_object", Bucket=bucket, Key=name)
    encryption = str(status.get("ServerSideEncryption", ""))
    return "kms" in encryption or "SSECustomerAlgorithm" in status


def remove_objects(urls: Iterable[Url]) -> None:
    """Remove those objects of one bucket that exist.

    Raises:
        MachineError: the object store refuses or fails; some of them may be removed.
    """
    urls = list(urls)
    if len(urls) > 1 and urls[0].protocol in S3:
        for first in range(0, len(urls), NUM_REMOVED):
            _remove_together(urls[first : first + NUM_REMOVED])
        return
    num_threads = NUM_THREADS if len(urls) > 1 and urls[0].protocol in OBJECT_STORES else 1
    for _ in map_ahead(_remove, urls, num_threads=num_threads):
        pass


def _remove(url: Url) -> None:
    system, key = url.open_file_system()
    with naming_requests(url), contextlib.suppress(FileNotFoundError):
        system.rm_file(key)


def _remove_together(urls: list[Url]) -> None:
    """Remove objects with one request; s3fs's `rm` would expand globs and hide failures."""
    system, _ = urls[0].open_file_system()
    keys = {"Objects": [{"Key": url.key.partition("/")[2]} for url in urls], "Quiet": True}
    bucket = urls[0].key.partition("/")[0]
    with naming_requests(urls[0].parent):
        answer = system.call_s3("delete_objects", Bucket=bucket, Delete=keys)
    for error in answer.get("Errors", []):
        raise MachineError(
            f"{urls[0].protocol}://{bucket}/{error.get('Key')}: {error.get('Message')}",
            hint=ACCESS_HINT,
        )


def read_version(status: dict[str, Any]) -> str:
    """Return the part of an object's status that changes when it is written again."""
    names = ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime", "created")
    found = next((status[name] for name in names if status.get(name)), "")
    if isinstance(found, datetime):  # in listings some object stores give seconds
        found = found.timestamp()
    return str(found).strip('"')
