"""URLs of objects, with the methods of `pathlib.Path` that are needed here.

A `Place` is a path or a URL: `parse_place` reads what a user wrote, `places.at` tells them apart.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from seqpack_cli.errors import OptionError, mask_secrets, quote
from seqpack_cli.files.file_systems import PACKAGES, naming_requests, open_file_system

URL_PATTERN = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.DOTALL | re.IGNORECASE)
# A misspelled URL: as a path it would create a folder such as `s3:`.
MISSPELLED = re.compile(r"(file|s3a?|gs|gcs|memory|https?|[a-z0-9]+:):", re.IGNORECASE)
SQUEEZED = re.compile(r"(file|s3a?|gs|gcs|memory|https?):/(?!/)")  # a URL that became a Path
URL_HINT = "write s3://bucket/name"
KEYS_HINT = "remove it; access keys go into environment variables such as AWS_ACCESS_KEY_ID"
VERSION_MARK = "?versionId="  # s3fs cuts a key there, and would use the object of that name
LOCAL_PROTOCOLS = ("file", "local")
WEB_PROTOCOLS = ("http", "https", "ftp")


@dataclass(frozen=True, order=True)
class Url:
    """The address of an object, or of all objects below it, without a slash at the end.

    `holder` identifies the lease under which a run writes there; every change checks it first, in
    any process of the run (`lease.check_held`).
    """

    text: str
    holder: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.text}/{name}", self.holder)

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
    def stem(self) -> str:
        """Return the last component without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """Return the suffix of the last component, with its dot."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> Url:
        """Return the URL above; a bucket is its own parent."""
        head, _, _ = self.key.rpartition("/")
        return Url(f"{self.protocol}://{head}", self.holder) if head else self

    def with_name(self, name: str) -> Url:
        """Return the URL with another last component."""
        return self.parent / name

    def resolve(self) -> Url:
        """Return self: there are no links and no working folder."""
        return self

    def open_file_system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path of this object in it.

        Call only methods that take a path literally: `rm`, `mv`, `get`, `put`, `cat` and others
        expand globs and would change other objects (`tests/inner/test_object_names.py`).

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


Place: TypeAlias = Path | Url
AnyPath: TypeAlias = str | os.PathLike[str] | Url  # what a caller of the library passes


def is_url(text: str) -> bool:
    """Return whether a text is a URL, `file://` included."""
    return "://" in text and URL_PATTERN.fullmatch(text) is not None


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


def find_local_name(name: str) -> str:
    """Return the path of a `file://` URL, and any other name unchanged."""
    return str(parse_place(name)) if split_url(name)[0] in LOCAL_PROTOCOLS else name


def check_address(text: str) -> None:
    """Raise OptionError for a URL of the web, or with a secret, which would be in the manifest."""
    if split_url(text)[0] in WEB_PROTOCOLS:
        raise OptionError(f"{text}: web addresses are not supported", hint="download the file")
    if is_url(text) and mask_secrets(text) != text:
        raise OptionError(f"{text}: contains a password or signature", hint=KEYS_HINT)


def split_url(text: str) -> tuple[str | None, str]:
    """Return the protocol of a URL in lower case and the rest; (None, text) if it is no URL."""
    match = URL_PATTERN.fullmatch(text)
    return (None, text) if match is None else (match[1].lower(), match[2])


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


def _find_protocol(place: Place) -> str:
    return split_url(str(place))[0] or LOCAL_PROTOCOLS[0]


def find_place(folder: Place, spelled: str) -> Place:
    """Return the place that a folder refers to: the inverse of `spell_place`."""
    if is_url(spelled):
        place = parse_place(spelled)
        known = (*PACKAGES, *LOCAL_PROTOCOLS, _find_protocol(folder))
        if _find_protocol(place) not in known:
            # Somebody else may have written the folder: it must not make us open any address.
            raise OptionError(f"{folder}: refers to {place}, expected a path, s3:// or gs://")
        return place
    if isinstance(folder, Path):
        return (folder.resolve() / spelled).resolve()
    bucket, _, key = folder.key.partition("/")
    inside = posixpath.normpath(posixpath.join("/", key, spelled))  # never above the bucket
    return parse_place(f"{folder.protocol}://{bucket}{inside}")
