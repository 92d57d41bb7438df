"""Files that are either whole or absent: atomic publishing, checksums, JSON, locks.

A file is published under its name only when it is whole: a temporary file in the same folder,
written, fsynced and hashed on the way, then renamed, then the folder fsynced. Whatever stops the
machine leaves the old file or none. BLAKE3 costs about 0.2 s a GiB on one core.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN
from seqpack_cli.files.held import upload_held
from seqpack_cli.files.lease import LOCK_NAME as LOCK_NAME
from seqpack_cli.files.lease import hold_lease
from seqpack_cli.files.url import Place, Url

# Of a lock: host and pid, or as much of them as a kill left.
OWNER = re.compile(rb'[^\s{}<>"]*( \d*)?')
MAX_LINES = 10_000  # of a list in a manifest: more are for programs to read


class HashingWriter:
    """An open temporary file that counts and hashes what is written to it."""

    def __init__(self, file: FileIO, path: Place) -> None:
        self._file = file
        self._path = path
        self._hash = blake3()
        self.num_bytes = 0

    def write(self, data: bytes | np.ndarray) -> None:
        """Write bytes, or a C-contiguous array's bytes."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")  # type: ignore[arg-type]
        disk.write_all(self._file, view, self._path)
        self._hash.update(view)
        self.num_bytes += view.nbytes

    def describe(self) -> dict[str, Any]:
        """Give size and digest as a manifest names them."""
        return {"bytes": self.num_bytes, "blake3": self._hash.hexdigest()}


@contextlib.contextmanager
def publish(path: Place, *, replace: bool = True) -> Iterator[HashingWriter]:
    """Write a file that appears under its name only when the block ends well.

    Args:
        replace: False never replaces a local file, even one that appeared during the block.

    Raises:
        MachineError: the disk is full, read-only, or fails, or an object store does.
    """
    if isinstance(path, Url):
        with _publish_object(path) as writer:
            yield writer
        return
    temp = disk.name_temporary(path)
    try:
        with disk.create_file(temp) as file:
            with contextlib.suppress(MachineError):  # a file system without locks
                disk.try_lock(file, path)
            yield HashingWriter(file, path)
            disk.sync_file(file, path)
            disk.rename(temp, path, replace=replace)
    except BaseException:
        with contextlib.suppress(MachineError):  # what stopped the block is the error
            disk.remove_file(temp)
        raise


@contextlib.contextmanager
def _publish_object(url: Url) -> Iterator[HashingWriter]:
    """Write a local file, and upload it when it is whole: a put can then be tried again."""
    with disk.temporary_folder() as folder:
        path = folder / url.name
        with disk.create_file(path) as file:
            yield HashingWriter(file, url)
        upload_held(path, url)


def write_json(path: Place, value: dict[str, Any]) -> str:
    """Publish a JSON object, one stable text for one value, and give its BLAKE3 checksum."""
    with publish(path) as file:
        file.write(_encode_lines(value))
    return str(file.describe()["blake3"])


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


@contextlib.contextmanager
def lock_folder(folder: Place) -> Iterator[Place]:
    """Be the only writer of a folder until the block ends; yield the place to write to.

    The kernel lets go of the lock when its process dies, so nothing stale is left to break; the
    file only tells the next writer who holds it. In an object store a lease does the same, and the
    place that is given knows its holder.

    Raises:
        FolderError: another process writes there, or the lock is a file that seqpack did not write.
    """
    if isinstance(folder, Url):
        with hold_lease(folder) as held:
            yield held
        return
    path = folder / LOCK_NAME
    with _open_locked(path) as file:
        try:
            file.truncate(0)
            disk.write_all(file, f"{platform.node()} {os.getpid()}".encode(), path)
            yield folder
        finally:
            with contextlib.suppress(MachineError):  # it is the lock that counts, not the file
                disk.remove_file(path)


def remove_temporary_files(folder: Place) -> None:
    """Remove what killed writers left behind; only for the holder of the folder's lock."""
    disk.remove_files([path for path in folder.iterdir() if TEMP_PATTERN.fullmatch(path.name)])


def _open_locked(path: Path) -> FileIO:
    while True:
        file = disk.open_shared(path)
        is_locked = disk.try_lock(file, path)
        owner = file.read(200)
        if is_locked and not OWNER.fullmatch(owner):
            file.close()
            raise FolderError(
                f"{path}: not a lock of seqpack, expected none",
                hint="remove it if it is not needed, or choose another -o",
            )
        if not is_locked:
            file.close()
            fields = owner.decode(errors="replace").split()
            host, pid = fields if len(fields) == 2 else ("unknown", "unknown")
            raise FolderError(
                f"{path.parent}: process {pid} on {host} writes here",
                hint="wait for it, or choose another -o",
            )
        with contextlib.suppress(FileNotFoundError):  # its last owner has just removed it
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()
