"""A place in an object store, with the manners of `pathlib.Path` as far as they are needed.

`Place` is either: what a user names is parsed once, and `places.at` tells which of both it is.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from seqpack_cli.errors import OptionError, mask_secrets
from seqpack_cli.files.file_systems import PACKAGES, naming_requests, open_file_system

URL_PATTERN = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.DOTALL | re.IGNORECASE)
# What can only be meant as a URL: as a path it would become a folder here.
MISSPELLED = re.compile(r"(file|s3a?|gs|gcs|memory|https?|[a-z0-9]+:):", re.IGNORECASE)
SQUEEZED = re.compile(r"(file|s3a?|gs|gcs|memory|https?):/(?!/)")  # a URL that became a Path
URL_HINT = "write s3://bucket/name"
KEYS_HINT = "remove it; access keys go into environment variables such as AWS_ACCESS_KEY_ID"
VERSION_MARK = "?versionId="  # s3fs cuts a key there, and would take the object before it
LOCAL_PROTOCOLS = ("file", "local")


@dataclass(frozen=True, order=True)
class Url:
    """The address of an object, or of all objects below it; without a slash at its end.

    `holder` names the lease under which a run writes there: what changes an object checks it first,
    in whichever process (`lease.check_held`).
    """

    text: str
    holder: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.text}/{name}", self.holder)

    @property
    def protocol(self) -> str:
        """Return what stands before `://`."""
        return self.text.partition("://")[0]

    @property
    def key(self) -> str:
        """Return what stands behind `://`: bucket and key."""
        return self.text.partition("://")[2]

    @property
    def name(self) -> str:
        """Return the last part."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """Return the last part without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """Return the suffix of the last part, with its dot."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> Url:
        """Return what it lies in; a bucket lies in itself."""
        head, _, _ = self.key.rpartition("/")
        return Url(f"{self.protocol}://{head}", self.holder) if head else self

    def with_name(self, name: str) -> Url:
        """Return a neighbour."""
        return self.parent / name

    def resolve(self) -> Url:
        """Return the same: there are no links and no working folder."""
        return self

    def open_file_system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path it knows this by.

        Only methods that take a path literally may be called on it: `rm`, `mv`, `get`, `put`, `cat`
        and others expand globs, and then change what lies beside (`tests/test_object_names.py`).

        Raises:
            OptionError: the name cannot be used, since s3fs would cut it.
        """
        if VERSION_MARK in self.key:
            raise OptionError(
                f"{self}: names a version of an object ({VERSION_MARK}), expected an object",
                hint="copy that version to another object",
            )
        with naming_requests(self):
            return open_file_system(self.protocol), self.key

    def find_status(self) -> dict[str, Any] | None:
        """Return what the store says of it, `type` and `size` among it; None if nothing is there.

        Raises:
            MachineError: the store does not say.
        """
        system, key = self.open_file_system()
        with naming_requests(self):
            try:
                found: dict[str, Any] = system.info(key)
            except FileNotFoundError:
                return None
            return found

    def exists(self) -> bool:
        """Say whether an object is there, or any below it."""
        return self.find_status() is not None

    def is_dir(self) -> bool:
        """Say whether there are objects below it."""
        status = self.find_status()
        return status is not None and status["type"] == "directory"

    def iterdir(self) -> Iterator[Url]:
        """List what lies right below it; nothing if there is nothing."""
        for name in self.list_files():
            yield self / name

    def list_files(self) -> dict[str, dict[str, Any]]:
        """Return the objects right below it, by name, each with its `size`."""
        system, key = self.open_file_system()
        with naming_requests(self):
            try:
                entries = system.ls(key, detail=True)
            except FileNotFoundError:
                return {}
        # Itself is among them where it is an object, or where one of its name marks a folder.
        paths = {str(entry["name"]).strip("/"): entry for entry in entries}
        itself = key.strip("/")
        return {path.rpartition("/")[2]: entry for path, entry in paths.items() if path != itself}


Place: TypeAlias = Path | Url
AnyPath: TypeAlias = str | os.PathLike[str] | Url  # what a caller of the library passes


def is_url(text: str) -> bool:
    """Say whether a text is the address of an object, or of a local file as a URL."""
    return URL_PATTERN.fullmatch(text) is not None


def parse_place(name: AnyPath) -> Place:
    """Return the path or URL that a caller names; `file://` names a path.

    Raises:
        OptionError: a URL that names no place in a store, or a path that is nearly one.

    >>> parse_place("s3://bucket/tokens/")
    Url(text='s3://bucket/tokens')
    >>> parse_place("file:///tokens").name
    'tokens'
    """
    if isinstance(name, Url):
        return name
    text = os.fspath(name)
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
    if protocol in ("http", "https", "ftp") or {"", ".", ".."} & set(parts):
        raise OptionError(f"{text}: not an address in an object store", hint=URL_HINT)
    return Url(f"{protocol}://{'/'.join(parts)}")


def spell_inputs(inputs: AnyPath | Sequence[AnyPath]) -> list[str]:
    """Return the inputs of a run, which may be a single one, as texts: they may be globs or `-`."""
    names = [inputs] if isinstance(inputs, str) or not isinstance(inputs, Sequence) else inputs
    return [name if isinstance(name, str) else str(parse_place(name)) for name in names]


def find_local_name(name: str) -> str:
    """Return the path that a `file://` URL names; any other name as it is."""
    return str(parse_place(name)) if split_url(name)[0] in LOCAL_PROTOCOLS else name


def check_address(text: str) -> None:
    """Raise OptionError if a URL holds a password or signature: it would end up in the manifest."""
    if is_url(text) and mask_secrets(text) != text:
        raise OptionError(f"{text}: contains a password or signature", hint=KEYS_HINT)


def split_url(text: str) -> tuple[str | None, str]:
    """Return the protocol of a URL in small letters, or None, and what is behind it."""
    match = URL_PATTERN.fullmatch(text)
    return (None, text) if match is None else (match[1].lower(), match[2])


def is_shared(place: str | Place) -> bool:
    """Say whether other processes see what is there too: not in `memory://`."""
    return not str(place).startswith("memory://")


def spell_place(place: Place, folder: Place) -> str:
    """Return how a folder names another: by the way there, or by URL if it is elsewhere."""
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
    """Return the place that a folder names: the inverse of `spell_place`."""
    if is_url(spelled):
        place = parse_place(spelled)
        known = (*PACKAGES, *LOCAL_PROTOCOLS, _find_protocol(folder))
        if _find_protocol(place) not in known:
            # The folder may be a stranger's.
            raise OptionError(f"{folder}: refers to {place}, expected a path, s3:// or gs://")
        return place
    if isinstance(folder, Path):
        return (folder.resolve() / spelled).resolve()
    bucket, _, key = folder.key.partition("/")
    inside = posixpath.normpath(posixpath.join("/", key, spelled))  # never above the bucket
    return parse_place(f"{folder.protocol}://{bucket}{inside}")
