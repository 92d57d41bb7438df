"""Files that are either whole or absent: atomic publishing, sha256, JSON, safe names, maps, locks.

All writing of the project goes through `publish`: a temporary file in the same folder, written,
flushed, fsynced and hashed on the way, then renamed, then the folder fsynced. Whatever stops the
machine leaves the old file or none. sha256 costs about 0.7 s a GiB on one core.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seqpack_cli.errors import FolderError, MachineError, quote

LOCK_NAME = ".lock"
TEMP_PATTERN = re.compile(r"\.(.+)\.\d+\.tmp")
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_COUNT = 2**53  # sums of a few stay within int64
MAX_LINES = 10_000  # of a list in a manifest: more are for programs to read
MAX_MANIFEST_BYTES = 1 << 30  # a hundred thousand sources take about 30 MB


class HashingWriter:
    """An open temporary file that counts and hashes what is written to it."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._hash = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: bytes | np.ndarray) -> None:
        """Write bytes, or a C-contiguous array's bytes."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")  # type: ignore[arg-type]
        with _naming_failures(self._path):
            self._file.write(view)
        self._hash.update(view)
        self.num_bytes += view.nbytes

    def describe(self) -> dict[str, Any]:
        """Give size and digest as a manifest names them."""
        return {"bytes": self.num_bytes, "sha256": self._hash.hexdigest()}


@contextlib.contextmanager
def publish(path: Path) -> Iterator[HashingWriter]:
    """Write a file that appears under its name only when the block ends well.

    Raises:
        MachineError: the disk is full, read-only, or fails.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _naming_failures(path):
        file = temp.open("wb")
    try:
        yield HashingWriter(file, path)
        with _naming_failures(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            temp.replace(path)
            _fsync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # closing tries once more to write what had no room
            file.close()
        temp.unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any]) -> str:
    """Publish a JSON object, one stable text for one value, and give its sha256."""
    with publish(path) as file:
        file.write(_encode_lines(value))
    return str(file.describe()["sha256"])


def encode_json(value: object) -> bytes:
    """Give one line of JSON, without its end, readable unless a name in it is no Unicode text."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _encode_lines(value: dict[str, Any]) -> bytes:
    """Write each field on a line, and each item of a list of objects, if there are not too many."""
    fields = []
    for name, field in value.items():
        if isinstance(field, list) and field and isinstance(field[0], dict):
            many = len(field) > MAX_LINES
            items = [encode_json(field)[1:-1]] if many else map(encode_json, field)
            text = b"[\n  " + b",\n  ".join(items) + b"\n ]"
        else:
            text = encode_json(field)
        fields.append(b" " + encode_json(name) + b": " + text)
    return b"{\n" + b",\n".join(fields) + b"\n}\n"


def read_json(path: Path) -> Any:
    """Read a JSON object that this program wrote.

    Raises:
        FolderError: it is not a regular file, too large, or not JSON; the message has the place.
    """
    check_regular_file(path)
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise FolderError(f"{path}: {path.stat().st_size:,} bytes, expected a manifest")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FolderError(f"{path}: a JSON {type(value).__name__}, expected an object")
    return value


def check_regular_file(path: Path, *, num_bytes: int | None = None) -> None:
    """Raise unless path is a plain file, not a link, of the expected size."""
    try:
        status = path.lstat()
    except FileNotFoundError as error:
        raise FolderError(f"{path}: missing") from error
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise FolderError(f"{path}: not a regular file")
    if num_bytes is not None and status.st_size != num_bytes:
        raise FolderError(f"{path}: {status.st_size:,} bytes, manifest says {num_bytes:,}")


def check_name(name: object, *, source: Path) -> str:
    """Give a file name from a manifest back if it can not leave the manifest's folder."""
    if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
        raise FolderError(f"{source}: {quote(name)} is not a plain file name")
    return name


def check_fields(value: object, fields: dict[str, type], *, source: Path) -> None:
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


def hash_file(path: Path) -> str:
    """Give the sha256 of a whole file as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def map_array(path: Path, dtype: str, *, count: int, offset: int = 0) -> np.ndarray:
    """Memory-map count items of a file whose size was checked, read-only."""
    if count == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", offset, (count,)).view(np.ndarray)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder until the block ends.

    The kernel lets go of the lock when its process dies, so nothing stale is left to break; the
    file only tells the next writer who holds it.

    Raises:
        FolderError: another process writes there.
    """
    path = folder / LOCK_NAME
    file = _open_locked(path)
    try:
        file.truncate(0)
        file.write(f"{platform.node()} {os.getpid()}".encode())
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def remove_temporary_files(folder: Path) -> None:
    """Remove what killed writers left behind; only for the holder of the folder's lock."""
    for path in folder.iterdir():
        if TEMP_PATTERN.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _open_locked(path: Path) -> FileIO:
    import fcntl  # not on Windows, where only this function needs another way

    while True:
        with _naming_failures(path):
            file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read(200).decode(errors="replace").split()
            file.close()
            host, pid = owner if len(owner) == 2 else ("unknown", "unknown")
            raise FolderError(
                f"{path.parent}: process {pid} on {host} writes here",
                hint="wait for it, or choose another -o",
            ) from error
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            return file  # not a file that its last owner has just removed
        file.close()


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _naming_failures(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"{path}: {error.strerror or error}",
            hint="mend it, then run the same command again",
        ) from error
