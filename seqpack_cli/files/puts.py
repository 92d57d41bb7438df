"""Files uploaded and small objects put, on request only over what the caller has seen.

An upload appears under its name only when it is whole: object stores promise that of a put and of
a multipart upload; anywhere else it goes to a temporary name first.
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

CREATING = (*S3, "gs", "gcs")  # whose packages know mode="create" of files too
REFUSED = re.compile("ConditionalRequestConflict|pre-?conditions?", re.IGNORECASE)
UNKNOWN_CONDITION = re.compile("NotImplemented|not implemented")  # by this server


def upload(path: Path, url: Url) -> None:
    """Put a local file under a name, where it appears when it is whole.

    Raises:
        MachineError: the store did not take it, or holds another number of bytes.
    """
    system, key = url.open_file_system()
    if url.protocol in OBJECT_STORES:  # which check the size and a sum before they answer
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


def put_over(url: Url, data: bytes, tag: str | None) -> bool:
    """Put a small object under a name if the object there has this tag; say whether it was so.

    False too where an answer was lost and the put tried again: who asks reads what is there.

    Args:
        tag: of `find_tag`; None if there is none.
    """
    system, key = url.open_file_system()
    return _put_if(url, functools.partial(system.pipe_file, key, data), **_match(url, tag))


def _match(url: Url, tag: str | None) -> dict[str, str]:
    """Return the condition that an object is the one with a tag, where that can be asked."""
    if tag is None:
        return {"mode": "create"}
    return {"IfMatch": tag} if url.protocol in S3 else {}


def _put_if(url: Url, put: Callable[..., Any], **condition: str) -> bool:
    """Put an object under a condition; say whether it held. A store without conditions puts it."""
    with naming_requests(url):
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


def find_tag(url: Url) -> str | None:
    """Return what the store calls the content of an object; None if there is no object."""
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
