"""Upload files and small objects, optionally only over the version that the caller has seen.

An upload appears under its name only when it is complete. Object stores promise that for a put and
for a multipart upload; elsewhere the upload goes to a temporary name first.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqpack_cli.errors import MachineError
from seqpack_cli.files.file_systems import AGAIN_HINT, naming_requests
from seqpack_cli.files.objects import OBJECT_STORES, S3
from seqpack_cli.files.url import Url

CREATING = (*S3, "gs", "gcs")  # their packages support mode="create" for files too
REFUSED = re.compile("ConditionalRequestConflict|pre-?conditions?", re.IGNORECASE)
UNKNOWN_CONDITION = re.compile("NotImplemented|not implemented")  # some servers answer so


def upload(path: Path, url: Url) -> None:
    """Upload a local file; the object appears when it is complete.

    Raises:
        MachineError: the object store refuses it, or holds another number of bytes afterwards.
    """
    system, key = url.open_file_system()
    if url.protocol in OBJECT_STORES:  # these check size and checksum before they answer
        with naming_requests(url):
            system.put_file(str(path), key)
        return
    temporary = url.with_name(f".{url.name}.{os.getpid()}.tmp")
    with naming_requests(url):
        system.put_file(str(path), temporary.key)
    _check_size(temporary, path.stat().st_size)
    with naming_requests(url):
        _move(system, temporary.key, key)


def upload_over(path: Path, url: Url, tag: str | None) -> bool:
    """Upload a local file if the object there has this tag; return whether it had.

    Args:
        tag: from `find_tag`; None if there must be no object.
    """
    if url.protocol not in CREATING:
        upload(path, url)
        return True
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.put_file, str(path), key), **_match(url, tag))


def _move(system: Any, key: str, new_key: str) -> None:
    """Rename an object; fsspec's generic `mv` would expand globs in the name."""
    from fsspec import AbstractFileSystem

    if type(system).mv is not AbstractFileSystem.mv:
        system.mv(key, new_key)
        return
    system.cp_file(key, new_key)
    system.rm_file(key)


def put_over(url: Url, data: bytes, tag: str | None) -> bool:
    """Write a small object if the object there has this tag; return whether it had.

    The result may be False after a successful put whose answer was lost: read the object to know.

    Args:
        tag: from `find_tag`; None if there must be no object.
    """
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.pipe_file, key, data), **_match(url, tag))


def _match(url: Url, tag: str | None) -> dict[str, str]:
    """Return the condition that the object has a tag, if the object store supports that."""
    if tag is None:
        return {"mode": "create"}
    return {"IfMatch": tag} if url.protocol in S3 else {}


def _put_if(url: Url, put: Callable[..., Any], **condition: str) -> bool:
    """Call put under a condition and return whether it held; put anyway if it is unsupported."""
    with naming_requests(url):
        try:
            put(**condition)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if "IfMatch" in condition:
                return False  # the object was removed
            raise
        except OSError as error:
            if REFUSED.search(str(error)):
                return False
            if not UNKNOWN_CONDITION.search(str(error)):
                raise
            put()
        return True


def find_tag(url: Url) -> str | None:
    """Return the ETag of an object ("" if it has none); None if there is no object."""
    status = url.find_status()
    if status is None or status["type"] != "file":
        return None
    return str(status.get("ETag", ""))


def _check_size(url: Url, num_bytes: int) -> None:
    status = url.find_status()
    if status is None or status["size"] != num_bytes:
        found = "nothing" if status is None else f"{status['size']:,} bytes"
        raise MachineError(
            f"{url}: holds {found} after the upload, expected {num_bytes:,}", hint=AGAIN_HINT
        )
