"""Find the files of a local input: a file, all files below a folder, or those of a glob."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from pathlib import Path

from seqpack_cli.corpus.folder_walk import (
    MISSING_ERRNOS,
    FolderWalk,
    FoundFile,
    Search,
    read_error,
)
from seqpack_cli.corpus.formats import find_file_format
from seqpack_cli.errors import OptionError
from seqpack_cli.files.places import suggest_name

MAX_SHOWN_CHARACTERS = 200  # of a line that is not a path: LIST may be any file


def find_local_files(name: str, search: Search, *, is_listed: bool = False) -> list[FoundFile]:
    """Find the regular files of a path or glob; a path that exists is never a glob.

    Args:
        search: what is wanted below folders and globs.
        is_listed: the name is from --files-from, where it is never a glob.

    Raises:
        OptionError: nothing has that name, or it is not a file or folder.
        MachineError: something cannot be read.
    """
    status = _find_status(name)
    if status is None and is_listed:
        shown = name if len(name) <= MAX_SHOWN_CHARACTERS else f"{name[:MAX_SHOWN_CHARACTERS]}…"
        raise OptionError(
            f"{shown}: no such file or folder{suggest_name(name)}",
            hint="list absolute paths, or paths relative to the current folder",
        )
    if status is None:
        root, parts = _split_pattern(name)
        search.choice.begin(name)
        walk = FolderWalk(parts, search)
        found = walk.find_files(root) if parts and Path(root).is_dir() else []
        if not walk.has_match:
            raise OptionError(
                f"{name}: no such file or folder{suggest_name(name)}",
                hint="pass a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'",
            )
        return found
    if stat.S_ISDIR(status.st_mode):
        search.choice.begin(name)
        walk = FolderWalk((), search)
        folder = str(Path(name))
        return walk.find_files("" if folder == os.curdir else folder)
    if not stat.S_ISREG(status.st_mode):
        raise OptionError(f"{name}: not a regular file, expected a file, a folder or a glob")
    real, kind = os.path.realpath(name), find_file_format(name, search.formats)
    return [FoundFile(real, name, status.st_size, status.st_mtime_ns, kind, is_named=True)]


def _find_status(name: str) -> os.stat_result | None:
    """Return the status of a path, None if it does not exist."""
    try:
        return os.stat(name)  # noqa: PTH116
    except ValueError:  # a NUL in it
        return None
    except OSError as error:
        if error.errno not in MISSING_ERRNOS:
            raise read_error(name, error) from error
        if os.path.islink(name):  # noqa: PTH114
            raise OptionError(f"{name}: dangling link, expected a file") from error
        return None


def _split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Split a glob into the folder before its first wildcard, and the parts after that.

    A part with brackets that exists under this very name is a name, not a wildcard.
    """
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        is_name = (
            not fnmatch.fnmatchcase(part, part) and Path("/".join(parts[: index + 1])).exists()
        )
        if glob.has_magic(part) and not is_name:
            root = "/".join(parts[:index])
            return root or ("/" if index else ""), parts[index:]
    return pattern, []
