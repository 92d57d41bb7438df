"""A folder for files that are all written and checked before one of them is published.

`.NAME.123.tmp/` beside NAME holds a lock file, the new files in `new/`, and those that they replace
in `old/` until they are removed. A rename publishes a file, or the whole of `new/`. A folder that
exists stays: its files are moved out, then the new ones in. What a killed process leaves there is
removed by the next one that writes NAME.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from seqpack_cli.errors import FolderError, MachineError
from seqpack_cli.files import disk
from seqpack_cli.files.disk import LOCK_NAME, TEMP_PATTERN
from seqpack_cli.files.local_locks import hold_lock
from seqpack_cli.files.mapping import open_regular

NEW, OLD = "new", "old"
LOCK_SECONDS = 5.0  # to lock a new folder, while others may take it for a left over and remove it


@contextlib.contextmanager
def hold_staging(path: Path) -> Iterator[Path]:
    """Yield a new folder beside a path, whose own folder is made if it is missing."""
    temporary = disk.name_temporary(path)
    with contextlib.ExitStack() as held:
        new_folders = _make_locked(temporary, held)
        try:
            yield _make(temporary / NEW)
            _clear(temporary)
        except BaseException:
            with contextlib.suppress(MachineError):  # the first error is the one to report
                _clear(temporary)
            held.close()
            disk.remove_folders(new_folders)
            raise
    disk.remove_folders([temporary])


def _make_locked(temporary: Path, held: contextlib.ExitStack) -> list[Path]:
    """Make a staging folder and lock it; return the new folders, the innermost first.

    Before it is locked, a process that cleans up may hold its lock for a moment, and remove it.
    """
    new_parents, end = list[Path](), time.monotonic() + LOCK_SECONDS
    while True:
        try:
            new_parents += [each for each in disk.make_folder(temporary) if each != temporary]
            held.enter_context(hold_lock(temporary / LOCK_NAME))
        except (FolderError, MachineError):
            if time.monotonic() > end:
                disk.remove_folders([temporary, *new_parents])
                raise
            time.sleep(0.001)
        else:
            return [temporary, *new_parents]


def remove_staging(temporary: Path) -> None:
    """Remove a staging folder unless a process is using it."""
    try:
        with hold_lock(temporary / LOCK_NAME):
            _clear(temporary)
    except FolderError:
        return  # in use
    except MachineError as error:
        if not isinstance(error.__cause__, FileNotFoundError):  # its owner may just have removed it
            raise
    disk.remove_folders([temporary])


def move_in(staged: Path, path: Path, *, replace: bool) -> None:
    """Rename a staged file or folder to its final name.

    An earlier folder gets the files in place of its own. Its first file comes last: a kill leaves
    some of the old files or of the new ones, never both.
    """
    if not staged.is_dir():
        with open_regular(staged) as file:
            disk.sync_file(file, path)
        disk.rename(staged, path, replace=replace)
        return
    files = sorted(staged.iterdir(), reverse=True)
    for each in files:
        with open_regular(each) as file:
            disk.sync_file(file, path)
    disk.sync_folder(staged)
    if not path.is_dir():
        disk.rename(staged, path)
        return
    old = _make(staged.with_name(OLD))
    with disk.naming_writes(path):
        earlier = [each for each in sorted(path.iterdir()) if not TEMP_PATTERN.fullmatch(each.name)]
    _rename_all([(each, old / each.name) for each in earlier])
    try:
        _rename_all([(each, path / each.name) for each in files])
    except BaseException:
        _rename_all([(old / each.name, each) for each in reversed(earlier)])
        raise


def _rename_all(pairs: list[tuple[Path, Path]]) -> None:
    """Rename files to names that are free; if one cannot be, rename the others back."""
    done = list[tuple[Path, Path]]()
    try:
        for source, target in pairs:
            disk.rename(source, target, replace=False)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            disk.rename(target, source)
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
