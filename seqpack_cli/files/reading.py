"""Reading files that a stranger may have written: nothing is believed before it is checked.

A name from a manifest is a plain name, a file a regular one of the size that was promised, opened
without following links or waiting for a pipe, and mapped as a whole. JSON has a bounded size,
nesting and number of items, and names each field once. An object of a store is asked for in the
same way; what is to be mapped becomes a local file first (`object_cache`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError, quote
from seqpack_cli.files.mapping import map_file
from seqpack_cli.files.objects import hash_object, read_object
from seqpack_cli.files.url import Place, Url

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
# No link is followed, no pipe waited for; Windows has neither, but text files.
FLAG_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
SAFE_FLAGS = sum(getattr(os, name, 0) for name in FLAG_NAMES)
MAX_COUNT = 2**53  # sums of a few stay within int64
HASH_BYTES = 1 << 20  # read at a time: they stay in the cache
MAX_JSON_BYTES = 128 << 20  # a hundred thousand parts and sources take about 90 MB
MAX_JSON_ITEMS = 10_000_000  # they have 2 million; each takes up to 100 bytes of memory
MAX_MAPPED_FILES = 16_384  # that one reader keeps: Linux allows a process 65,530 maps


def is_there(path: Place) -> bool:
    """Say whether there is anything under a name, a link to nowhere too.

    Raises:
        MachineError: the system does not say.
    """
    if isinstance(path, Url):
        return path.exists()
    try:
        _look_at(path)
    except FolderError:
        return False
    return True


def open_regular(path: Path, *, num_bytes: int | None = None) -> FileIO:
    """Open a plain file, not a link, of the expected size.

    Raises:
        FolderError: it is missing, something else, or of another size.
        MachineError: the disk fails, or this process may not read it.
    """
    if not stat.S_ISREG(_look_at(path).st_mode):  # opening a device may already do something
        raise FolderError(f"{path}: not a regular file")
    with _naming_failures(path):
        file = FileIO(os.open(path, os.O_RDONLY | SAFE_FLAGS), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and num_bytes in (None, status.st_size):
        return file
    file.close()
    if not stat.S_ISREG(status.st_mode):
        raise FolderError(f"{path}: not a regular file")
    raise size_error(path, status.st_size, num_bytes or 0)


def check_regular_file(path: Place, *, num_bytes: int | None = None) -> None:
    """Raise unless path is a plain file, not a link, of the expected size."""
    if isinstance(path, Url):
        _check_object(path, num_bytes)
        return
    open_regular(path, num_bytes=num_bytes).close()


def read_regular(path: Place, *, max_bytes: int) -> bytes:
    """Read a whole plain file, if it is no larger than it may be."""
    if isinstance(path, Url):
        _check_at_most(path, _check_object(path, None), max_bytes)
        return read_object(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_at_most(path, size, max_bytes)
        with _naming_failures(path):
            return file.read()


def read_json(path: Place) -> dict[str, Any]:
    """Read a JSON object that this program wrote.

    Raises:
        FolderError: it is not a regular file, too large, or not JSON; the message has the place.
    """
    return parse_json(read_regular(path, max_bytes=MAX_JSON_BYTES), source=path)


def parse_json(data: bytes, *, source: Place | str) -> dict[str, Any]:
    """Parse a JSON object from a file.

    Raises:
        FolderError: it is not JSON, has too many items, names a field twice, or is no object.
    """
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_ITEMS:
        raise FolderError(f"{source}: more than {MAX_JSON_ITEMS:,} items")
    try:
        value = json.loads(
            data,
            object_pairs_hook=_refuse_twins,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
        )
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{source}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FolderError(f"{source}: a JSON {type(value).__name__}, expected an object")
    return value


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"field {quote(name)} stands twice")
        found[name] = value
    return found


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{quote(text)} is beyond any number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def check_name(name: object, *, source: Place) -> str:
    """Give a file name from a manifest back if it can not leave the manifest's folder."""
    if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
        raise FolderError(f"{source}: {quote(name)} is not a plain file name")
    return name


def check_fields(value: object, fields: dict[str, type], *, source: Place | str) -> None:
    """Raise unless value is an object with these fields of these types; counts are never negative.

    A field of type object may be anything, null too.
    """
    if not isinstance(value, dict):
        raise FolderError(f"{source}: {quote(value)}, expected an object")
    for name, kind in fields.items():
        if name not in value:
            raise FolderError(f"{source}: no field {quote(name)}")
        found = value[name]
        is_count = type(found) is int and 0 <= found <= MAX_COUNT
        if not (is_count if kind is int else isinstance(found, kind)):
            expected = "a count" if kind is int else f"a {kind.__name__}"
            raise FolderError(
                f"{source}: field {quote(name)} is {quote(found)}, expected {expected}"
            )


def hash_regular(path: Place) -> str:
    """Return the BLAKE3 checksum of a whole plain file as hex."""
    if isinstance(path, Url):
        return hash_object(path)
    with open_regular(path) as file, _naming_failures(path):
        digest = blake3()
        while block := file.read(HASH_BYTES):
            digest.update(block)
        return digest.hexdigest()


def map_regular(path: Path, *, num_bytes: int | None = None) -> np.ndarray:
    """Map a whole plain file of the expected size, read-only, uint8[bytes]."""
    with open_regular(path, num_bytes=num_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:  # which no system maps
            return np.empty(0, np.uint8)
        with _naming_failures(path):  # there may be too many maps
            return map_file(file.fileno(), size)


def view_array(mapped: np.ndarray, dtype: str, *, count: int, offset: int = 0) -> np.ndarray:
    """Give count items of a mapped file from a byte on, all of which must lie in it."""
    num_bytes = count * np.dtype(dtype).itemsize
    return mapped[offset : offset + num_bytes].view(dtype)


def _check_object(url: Url, num_bytes: int | None) -> int:
    """Give the size of an object, if it is the expected one."""
    status = url.find_status()
    if status is None:
        raise FolderError(f"{url}: missing")
    if status["type"] != "file":
        raise FolderError(f"{url}: not a regular file")
    size = int(status["size"])
    if num_bytes not in (None, size):
        raise size_error(url, size, num_bytes or 0)
    return size


def _check_at_most(path: Place, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise FolderError(f"{path}: {size:,} bytes, expected at most {max_bytes:,}")


def size_error(path: Place, size: int, num_bytes: int) -> FolderError:
    """Make the error about a file that is not as long as the manifest says."""
    return FolderError(f"{path}: {size:,} bytes, manifest says {num_bytes:,}")


def _look_at(path: Path) -> os.stat_result:
    """Give the status of what is under a name, without following a link."""
    try:
        with _naming_failures(path):
            return path.lstat()
    except ValueError as error:  # a name that no file can have
        raise FolderError(f"{path}: {error}") from error


@contextlib.contextmanager
def _naming_failures(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FolderError(f"{path}: missing") from error
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror or error}") from error
