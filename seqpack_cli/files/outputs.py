"""Publish files that belong to no run: the outputs of unpack, train-tokenizer and pictures.

A file appears only when it is complete. An existing file is replaced only if the user asked for it
and nothing of theirs can be lost: it must be a regular file, empty or of the kind to be written,
outside every store and shard folder. This is checked before the work begins and again at its end.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seqpack_cli.errors import FolderError, OptionError
from seqpack_cli.files.disk import HashingWriter
from seqpack_cli.files.manifest import check_outside_runs
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import CreateFile, Place, at, parse_place, suggest_name

HEAD_BYTES = 4096
OTHER_NAME = "choose another name"


@dataclass(frozen=True)
class FileKind:
    """A kind of file, recognised by its first bytes, or by its last."""

    name: str  # as in "not a picture of seqpack"
    matches: Callable[[bytes], bool]
    max_bytes: int = HEAD_BYTES  # how many bytes `matches` gets
    at_end: bool = False  # whether these are the last bytes


def parse_file(name: AnyPath) -> Place:
    """Return the path or URL of a file to write.

    Raises:
        OptionError: the name ends like that of a folder.
    """
    if names_folder(name):
        raise OptionError(f"{name}: names a folder, expected a file", hint=OTHER_NAME)
    return parse_place(name)


def names_folder(name: AnyPath) -> bool:
    """Return whether a name can only be that of a folder: pathlib would drop its end."""
    return (os.fspath(name) if isinstance(name, os.PathLike) else str(name)).endswith(("/", "/."))


def check_new_name(path: Place) -> None:
    """Raise FolderError if a name is not free for a file, or may not be one."""
    folder = path.parent
    if isinstance(path, Path) and not folder.is_dir():
        hint = "create it, or choose another name"
        raise FolderError(f"{folder}: no such folder{suggest_name(folder)}", hint=hint)
    if at(path).exists():  # a name may be too long to look at
        for kind, is_it in (("symbolic link", path.is_symlink), ("folder", path.is_dir)):
            if is_it():
                raise FolderError(f"{path}: a {kind}, expected a file", hint=OTHER_NAME)
    check_outside_runs(path)


def check_target(path: Place, kind: FileKind, *, overwrite: bool) -> None:
    """Check that a file of a kind may be written to a path.

    Args:
        overwrite: whether an existing file of this kind may be replaced.

    Raises:
        FolderError: it may not be written.
        MachineError: the disk or the object store fails.
    """
    check_new_name(path)
    if not at(path).exists():
        return
    if not overwrite:
        raise FolderError(f"{path}: already exists", hint="choose another -o, or pass --overwrite")
    if at(path).check_size() and not is_of_kind(path, kind):
        raise foreign_error(path, kind, hint=OTHER_NAME)


def is_of_kind(path: Place, kind: FileKind) -> bool:
    """Return whether a regular file is of a kind."""
    num_bytes = min(at(path).check_size(), kind.max_bytes)
    return kind.matches(at(path).read_some(num_bytes, at_end=kind.at_end))


def foreign_error(path: Place, kind: FileKind, *, hint: str) -> FolderError:
    """Return the error about a file that is not of a kind, and is not replaced."""
    return FolderError(
        f"{path}: not {kind.name}; other files are not replaced",
        hint=f"{hint}, or remove the file yourself",
    )


@contextmanager
def publish_alone(
    path: Place, kind: FileKind, *, overwrite: bool = False
) -> Iterator[HashingWriter]:
    """Publish a file that belongs to no run, and remove what killed writers of it left.

    Raises:
        FolderError: the file may not be written, see `check_target`.
        MachineError: the disk is full, read-only, or fails.
    """
    check = functools.partial(check_target, path, kind, overwrite=overwrite)
    with publish_files(path.parent, check, replace=overwrite) as create:
        yield create(path.name)


@contextmanager
def publish_files(
    folder: Place, check: Callable[[], Iterable[str] | None], *, replace: bool
) -> Iterator[CreateFile]:
    """Yield a function that creates files of a folder, which appear in this order at the end.

    Args:
        check: raises FolderError if the files may not be written, now or when the work is done;
            returns the names of files to remove before they appear.
        replace: whether they may replace files of the same names.
    """
    check()
    files = dict[str, HashingWriter]()
    with at(folder).temporary_files() as create:

        def create_file(name: str) -> HashingWriter:
            at(folder).remove_left_overs(name)
            return files.setdefault(name, create(name))

        yield create_file
        at(folder).remove_files(check() or ())  # the work may have taken hours
        for name, file in files.items():
            at(folder / name).move_in(file, replace=replace)
