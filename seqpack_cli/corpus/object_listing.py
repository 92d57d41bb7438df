"""A URL as the user names it -> the objects it stands for: one, all below it, or a glob's.

This is the only place where a URL may be a glob, and only if there is no object of that very name:
everywhere else `*`, `?` and `[` are letters like others.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from seqpack_cli.errors import OptionError
from seqpack_cli.files.file_systems import naming_requests
from seqpack_cli.files.objects import read_version
from seqpack_cli.files.url import Url, check_address, split_url


class FoundObject(NamedTuple):
    """An object that an input stands for."""

    url: str
    below: str  # its path from the folder that was named; its own URL if it was named itself
    num_bytes: int
    version: str
    is_named: bool


def find_objects(name: str) -> Iterator[FoundObject]:
    """Find the objects of a URL, those of a folder sorted by the bytes of their paths.

    Raises:
        OptionError: there is none.
        MachineError: the store does not answer.
    """
    check_address(name)
    protocol, key = split_url(name)
    url = Url(f"{protocol}://{key.strip('/')}")
    if url.key.partition("/")[2].startswith("/"):  # s3fs would list what lies without it
        raise OptionError(f"{url}: begins with a slash behind the bucket, expected a name")
    status = url.find_status()
    if status is not None and status["type"] == "file" and not name.endswith("/"):
        yield _describe(url, status, str(url), is_named=True)
    elif status is not None:
        yield from _find_below(url)
    else:
        yield from _find_matches(url)


def _find_below(folder: Url) -> Iterator[FoundObject]:
    system, key = folder.open_file_system()
    with naming_requests(folder):
        found = system.find(key, detail=True)
    prefix = key.strip("/") + "/"
    named = {path.strip("/").removeprefix(prefix): status for path, status in found.items()}
    for below in sorted(named, key=str.encode):
        # An empty name is what some programs put there to mark a folder.
        is_file = below and not below.endswith("/") and named[below]["type"] == "file"
        if is_file and not _is_hidden(below):
            yield _describe(folder / below, named[below], below, is_named=False)


def _find_matches(pattern: Url) -> Iterator[FoundObject]:
    system, key = pattern.open_file_system()
    found: dict[str, Any] = {}
    if glob.has_magic(key):
        with naming_requests(pattern):
            found = system.glob(key, detail=True)
    if not found:
        raise OptionError(
            f"{pattern}: no such object, and none below it",
            hint="name an object, what objects lie below, or a glob in quotes",
        )
    folder = re.split(r"[*?[]", key)[0].rpartition("/")[0]  # before what matches many
    for path in sorted(found, key=str.encode):
        if _is_hidden(path.strip("/").removeprefix(f"{folder}/")):
            continue  # as Python's glob does
        url = Url(f"{pattern.protocol}://{path.strip('/')}")
        if found[path]["type"] == "file":
            yield _describe(url, found[path], str(url), is_named=True)
        else:
            yield from _find_below(url)


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))


def _describe(url: Url, status: dict[str, Any], below: str, *, is_named: bool) -> FoundObject:
    return FoundObject(str(url), below, int(status["size"]), read_version(status), is_named)
