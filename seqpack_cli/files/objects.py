"""Whole objects: found, read, checked, streamed, removed; `puts` uploads files."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files.ahead import map_ahead
from seqpack_cli.files.failures import check_at_most
from seqpack_cli.files.file_systems import ACCESS_HINT, naming_requests
from seqpack_cli.files.url import Url

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
S3 = ("s3", "s3a")  # s3fs passes If-Match on
RANGE_BYTES = 8 << 20  # asked for at a time: a request costs 20 to 50 ms, whatever it brings
NUM_AHEAD = 3  # ranges that are on their way while one is used
NUM_REMOVED = 1000  # objects in one request to S3: it takes no more
NUM_THREADS = 16  # that remove objects one by one elsewhere
MD5 = re.compile("[0-9a-f]{32}")


def find_object(url: Url) -> tuple[int, str]:
    """Return an object's size, and what changes when it is written again.

    Raises:
        FolderError: there is none, only such as lie below it.
    """
    status = url.find_status()
    if status is None:
        raise FolderError(f"{url}: missing")
    if status["type"] != "file":
        raise FolderError(f"{url}: not a regular file")
    return int(status["size"]), read_version(status)


def read_object(url: Url, *, max_bytes: int | None = None) -> bytes:
    """Read a whole object, checked as `iter_checked_object` does, if it is no larger than that."""
    size, version = find_object(url)
    if max_bytes is not None:
        check_at_most(url, size, max_bytes)
    return b"".join(iter_checked_object(url, size, version))


def iter_object(url: Url, start: int, end: int) -> Iterator[bytes]:
    """Stream a range of an object, the next pieces already on their way; fewer where it ends."""
    system, key = url.open_file_system()

    def read(first: int) -> bytes:
        with naming_requests(url):
            found: bytes = system.cat_file(key, start=first, end=min(first + RANGE_BYTES, end))
            return found

    num_threads = NUM_AHEAD if end - start > RANGE_BYTES else 1
    yield from map_ahead(read, range(start, end, RANGE_BYTES), num_threads=num_threads)


def iter_checked_object(url: Url, num_bytes: int, version: str) -> Iterator[bytes]:
    """Stream a whole object, and compare its bytes with its ETag where nothing else would.

    Over https damage on the way cannot stay unnoticed. Over http it can, and no store has checksums
    for ranges of an object; but the ETag of one put is the MD5 of its content, unless a key of the
    user's encrypts it. MD5 costs 1.7 s a GiB.

    Args:
        version: of `find_object`.

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
            f"{url}: damaged during the download, MD5 {digest.hexdigest()}, expected {version}",
            hint="run the same command again; if it fails again, use an https endpoint",
        )


def _is_plain(url: Url) -> bool:
    system, _ = url.open_file_system()
    return url.protocol in S3 and str(system.s3.meta.endpoint_url).startswith("http://")


def _has_own_key(url: Url) -> bool:
    """Say whether an object is encrypted in a way that makes its ETag no MD5 of the content."""
    system, key = url.open_file_system()
    bucket, _, name = key.partition("/")
    with naming_requests(url):
        status = system.call_s3("head_object", Bucket=bucket, Key=name)
    encryption = str(status.get("ServerSideEncryption", ""))
    return "kms" in encryption or "SSECustomerAlgorithm" in status


def remove_objects(urls: Iterable[Url]) -> None:
    """Remove objects of one bucket, those that are there.

    Raises:
        MachineError: the store refuses or fails; others of them may be removed.
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
    """Remove objects with one request; s3fs's `rm` expands globs, and hides what it cannot do."""
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
    """Return what the store says of an object that changes when it is written again."""
    names = ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime", "created")
    found = next((status[name] for name in names if status.get(name)), "")
    if isinstance(found, datetime):  # listings of some stores have seconds
        found = found.timestamp()
    return str(found).strip('"')
