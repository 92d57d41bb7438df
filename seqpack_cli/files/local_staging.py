"""A folder for files that are all written and checked before one of them is published.

`.NAME.123.tmp/` beside NAME holds a lock file, the new files in `new/`, and the folder that they
replace as `old/` while it is removed. A rename publishes a file or the whole of `new/`. What a
killed process leaves there is removed by the next one that writes NAME.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import LOCK_NAME
from seqpack_cli.files.local_locks import hold_lock
from seqpack_cli.files.mapping import open_regular

NEW, OLD = "new", "old"


@contextlib.contextmanager
def hold_staging(path: Path) -> Iterator[Path]:
    """Yield a new folder beside a path, whose own folder is made if it is missing."""
    temporary = disk.name_temporary(path)
    new_folders = disk.make_folder(temporary)
    try:
        with hold_lock(temporary / LOCK_NAME):
            yield _make(temporary / NEW)
            _clear(temporary)
    except BaseException:
        with contextlib.suppress(MachineError):  # the first error is the one to report
            _clear(temporary)
        disk.remove_folders(new_folders)
        raise
    disk.remove_folders([temporary])


def remove_staging(temporary: Path) -> None:
    """Remove a staging folder unless a process is using it."""
    with contextlib.suppress(FolderError):
        with hold_lock(temporary / LOCK_NAME):
            _clear(temporary)
        disk.remove_folders([temporary])


def move_in(staged: Path, path: Path, *, replace: bool) -> None:
    """Rename a staged file or folder to its final name; replace an earlier folder as a whole."""
    if not staged.is_dir():
        with open_regular(staged) as file:
            disk.sync_file(file, path)
        disk.rename(staged, path, replace=replace)
        return
    for each in staged.iterdir():
        with open_regular(each) as file:
            disk.sync_file(file, path)
    disk.sync_folder(staged)
    old = staged.with_name(OLD)
    has_old = path.is_dir()
    if has_old:
        disk.rename(path, old)
    try:
        disk.rename(staged, path)
    except BaseException:
        if has_old:
            disk.rename(old, path)
        raise


def _make(folder: Path) -> Path:
    disk.make_folder(folder)
    return folder


def _clear(temporary: Path) -> None:
    """Remove all files of a staging folder but its lock, and the folders in it."""
    for folder in (temporary / NEW, temporary / OLD):
        with disk.naming_writes(temporary):
            files = list(folder.iterdir()) if folder.is_dir() else []
        for file in files:
            disk.remove_file(file)
        disk.remove_folders([folder])
