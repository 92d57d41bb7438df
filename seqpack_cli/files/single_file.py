"""One file outside every run: the output of unpack, train-tokenizer and inspect's pictures.

Such a file is published whole, as those of a run are. What is there already is replaced only where
that was asked for and nothing of a user can be lost: a regular file, empty or of the kind that is
to be written, in no folder that holds a store or shards. The check is made before the work begins
and again when the file is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seqpack_cli.errors import FolderError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import TEMP_PATTERN
from seqpack_cli.files.manifest import is_run_folder
from seqpack_cli.files.objects import find_version, iter_object
from seqpack_cli.files.reading import is_there, open_regular
from seqpack_cli.files.storage import HashingWriter, publish
from seqpack_cli.files.url import Place, Url

HEAD_BYTES = 4096
OTHER_NAME = "choose another name"


@dataclass(frozen=True)
class FileKind:
    """What a file holds, found by its first bytes."""

    name: str  # as in "not a picture of seqpack"
    matches: Callable[[bytes], bool]
    max_bytes: int = HEAD_BYTES  # that `matches` looks at


def check_target(path: Place, kind: FileKind, *, overwrite: bool) -> None:
    """Raise unless a file of a kind may be written under a name.

    Args:
        overwrite: whether a file of this kind that is there may be replaced.

    Raises:
        FolderError: it may not.
        MachineError: the disk or the object store does not say what is there.
    """
    _check_folder(path)
    if isinstance(path, Path) and path.is_symlink():
        raise FolderError(f"{path}: is a link, expected a file or nothing", hint=OTHER_NAME)
    if not is_there(path):
        return
    if not overwrite:
        raise FolderError(f"{path}: already exists", hint="choose another -o, or pass --overwrite")
    head = _read_head(path, kind.max_bytes)
    if head and not kind.matches(head):
        raise FolderError(
            f"{path}: not {kind.name}, and nothing else is replaced",
            hint=f"{OTHER_NAME}, or remove the file yourself",
        )


@contextmanager
def publish_alone(
    path: Place, kind: FileKind, *, overwrite: bool = False
) -> Iterator[HashingWriter]:
    """Publish a file outside a run's folder; what killed writers of it left there is removed.

    Raises:
        FolderError: no such file may be written there: see `check_target`.
        MachineError: the disk is full, read-only, or fails.
    """
    check_target(path, kind, overwrite=overwrite)
    if isinstance(path, Path):
        _remove_left_over(path)
    with publish(path, replace=overwrite) as writer:
        yield writer
        check_target(path, kind, overwrite=overwrite)  # the work may have taken hours


def _check_folder(path: Place) -> None:
    """Raise unless a name is not a folder's, and lies in a folder that is there and no run's."""
    if path.is_dir():
        raise FolderError(f"{path}: is a folder, expected a file", hint=OTHER_NAME)
    if isinstance(path, Path) and not path.parent.is_dir():
        raise FolderError(f"{path.parent}: no such folder", hint=f"make it, or {OTHER_NAME}")
    folder = path.parent.resolve()
    while True:
        if is_run_folder(folder):
            raise FolderError(
                f"{path}: {folder} holds a store or shards, expected another folder",
                hint="choose a name outside of it",
            )
        if folder == folder.parent:
            return
        folder = folder.parent


def _read_head(path: Place, num_bytes: int) -> bytes:
    if isinstance(path, Url):
        size = find_version(path)[0]
        return b"".join(iter_object(path, 0, min(num_bytes, size)))
    with open_regular(path) as file:
        return file.read(min(num_bytes, os.fstat(file.fileno()).st_size))


def _remove_left_over(path: Path) -> None:
    """Remove what killed writers of a file left in its folder."""
    with disk.naming_failures(path):
        found = [temp for temp in path.parent.iterdir() if TEMP_PATTERN.fullmatch(temp.name)]
    for temp in found:
        if temp.name.startswith(f".{path.name}."):
            with disk.open_shared(temp) as file:
                if disk.try_lock(file, temp):  # nobody writes it
                    disk.remove_file(temp)
