"""One file outside every run: the output of unpack, train-tokenizer and inspect's pictures.

Such a file is published whole, as those of a run are. What is there already is replaced only where
that was asked for and nothing of a user can be lost: a regular file, empty or of the kind that is
to be written, in no folder that holds a store or shards. The check is made before the work begins
and again when the file is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seqpack_cli.errors import FolderError
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.manifest import is_run_folder
from seqpack_cli.files.places import at
from seqpack_cli.files.url import Place

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
    if not at(path).exists():
        return
    if not overwrite:
        raise FolderError(f"{path}: already exists", hint="choose another -o, or pass --overwrite")
    size = at(path).check_size()
    if size and not kind.matches(at(path).read_head(min(size, kind.max_bytes))):
        raise FolderError(
            f"{path}: not {kind.name}, which is all that --overwrite replaces here",
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
    at(path).remove_left_overs()
    with at(path).publish(replace=overwrite) as writer:
        yield writer
        check_target(path, kind, overwrite=overwrite)  # the work may have taken hours


def _check_folder(path: Place) -> None:
    """Raise unless a name is not a folder's, and lies in a folder that is there and no run's."""
    if path.is_dir():
        raise FolderError(f"{path}: a folder, expected a file", hint=OTHER_NAME)
    at(path).check_new_file()
    folder = path.parent.resolve()
    while True:
        if is_run_folder(folder):
            raise FolderError(
                f"{path}: {folder} holds a store or shards, expected another folder",
                hint="choose a name outside it",
            )
        if folder == folder.parent:
            return
        folder = folder.parent
