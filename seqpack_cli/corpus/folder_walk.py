"""Find the files below a folder or of a glob, each once, however many links lead to it.

One walk serves both: a folder is a glob that matches everything. Links are followed after all real
folders, so that a file is named by its real path if the walk finds it there. No folder is visited
twice for the same part of a pattern, so loops of links end. 100,000 files take about a second.
"""

from __future__ import annotations

import errno
import fnmatch
import heapq
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from seqpack_cli.corpus.formats import FileFormat, find_file_format
from seqpack_cli.corpus.skipped import (
    DANGLING_LINK,
    REPEATED_LINK,
    SEQPACK_OUTPUT,
    SPECIAL_FILE,
    UNKNOWN_SUFFIX,
    VANISHED,
    Skipped,
)
from seqpack_cli.errors import MachineError
from seqpack_cli.files.manifest import RUN_NAMES, is_run_folder

MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
DEEP = "**"


class FoundFile(NamedTuple):
    """A file that an input names."""

    real: str  # its path with all links resolved: identifies the file
    path: str
    num_bytes: int
    modified: int | str
    kind: FileFormat
    is_named: bool  # by the user or matched by a glob, not only found below a folder
    match: str = ""  # what a glob matched: the file, or a folder above it


class _Wanted(NamedTuple):
    """What the name of an entry matches; states are the parts to match next below a folder."""

    states: frozenset[int]
    is_file: bool
    is_named: bool


class _Entry(NamedTuple):
    """An entry of a folder."""

    path: str
    real: str
    match: str
    wanted: _Wanted


NOTHING = _Wanted(frozenset(), is_file=False, is_named=False)


class FolderWalk:
    """A walk below one folder.

    Args:
        parts: the pattern of the paths below it, split at slashes, the last one empty if only
            folders shall match; without parts everything matches that is not hidden.
        takes_all: include files with unknown suffixes.
        output: the real path of a folder to skip.
    """

    def __init__(
        self, parts: Sequence[str], skipped: Skipped, *, takes_all: bool, output: str | None
    ) -> None:
        self._only_folders = parts[-1:] == [""]
        parts = [part for part in parts if part]
        while self._only_folders and parts[-1:] == [DEEP]:
            parts.pop()  # matches all folders, so everything in them
        self._parts = [None if part == DEEP else _compile(part) for part in parts]
        self._end = len(parts)  # the state that matches everything
        self._all = _Wanted(frozenset({self._end}), is_file=True, is_named=False)
        self._skipped, self._takes_all, self._output = skipped, takes_all, output
        self._found: dict[str, FoundFile] = {}
        self._visited: dict[str, frozenset[int]] = {}
        self._folders: list[_Entry] = []
        self._links: list[tuple[bytes, _Entry]] = []  # by the bytes of their paths
        self.has_match = False

    def find_files(self, path: str) -> list[FoundFile]:
        """Find the regular files, sorted by what the pattern matched, then by their paths.

        Args:
            path: the folder, spelled as the paths of the files shall begin; "" for the current one.

        Raises:
            MachineError: a folder or link cannot be read.
        """
        real = os.path.realpath(path or os.curdir)
        if self._output is not None and _add_slash(real).startswith(_add_slash(self._output)):
            self._output = None  # the caller refuses the files found there
        wanted = _Wanted(self._close({0}), is_file=False, is_named=False)
        self._take_folder(_Entry(path, real, path, wanted))
        while self._folders or self._links:
            if self._folders:
                self._visit(self._folders.pop())
            else:
                self._follow(heapq.heappop(self._links)[1])
        found = sorted(self._found.values(), key=lambda file: os.fsencode(file.path))
        return sorted(found, key=lambda file: os.fsencode(file.match)) if self._parts else found

    def _close(self, states: set[int]) -> frozenset[int]:
        """Add the states that need no entry: `**` also matches no folder."""
        for state in sorted(states):
            while state < self._end - 1 and self._parts[state] is None:
                state += 1
                states.add(state)
        return frozenset(states)

    def _visit(self, folder: _Entry) -> None:
        entries = self._list(folder.path)
        is_run = any(entry.name in RUN_NAMES for entry in entries)
        if is_run and is_run_folder(Path(folder.path)):
            self._skipped.add(SEQPACK_OUTPUT, folder.path or os.curdir)
            return
        prefix, real_prefix = _add_slash(folder.path), _add_slash(folder.real)
        is_below = self._end in folder.wanted.states
        for entry in entries:
            name = entry.name
            wanted = self._match(name, folder.wanted.states)
            if wanted.is_file or wanted.states:
                path = prefix + name
                match = folder.match if is_below else path
                self._take(entry, _Entry(path, real_prefix + name, match, wanted))

    def _list(self, path: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(path or os.curdir) as entries:
                return list(entries)
        except FileNotFoundError:
            self._skipped.add(VANISHED, path)
            return []
        except OSError as error:  # skipping it would lose the files in it
            raise read_error(path, error) from error

    def _match(self, name: str, states: frozenset[int]) -> _Wanted:
        """Match the name of an entry of a folder."""
        if states == self._all.states:
            return NOTHING if name.startswith(".") else self._all
        is_file = is_named = False
        below: set[int] = set()
        for state in states:
            part = self._parts[state] if state < self._end else None
            if part is None:
                if not name.startswith("."):
                    below.add(state)
                    is_file |= state >= self._end - 1
                    is_named |= state == self._end - 1
            elif part(name):
                below.add(state + 1)
                is_named |= state == self._end - 1 and not self._only_folders
        return _Wanted(self._close(below), is_file or is_named, is_named)

    def _take(self, entry: os.DirEntry[str], found: _Entry) -> None:
        try:
            if entry.is_symlink():
                heapq.heappush(self._links, (os.fsencode(found.path), found))
            elif entry.is_dir(follow_symlinks=False):
                if found.wanted.states:
                    self._take_folder(found)
            elif found.wanted.is_file:
                self._take_file(found, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            self._skipped.add(VANISHED, found.path)
        except OSError as error:
            raise read_error(found.path, error) from error

    def _follow(self, link: _Entry) -> None:
        try:
            status = os.stat(link.path)  # noqa: PTH116
            link = link._replace(real=os.path.realpath(link.path))
        except OSError as error:
            if error.errno not in MISSING_ERRNOS:
                raise read_error(link.path, error) from error
            self._skipped.add(DANGLING_LINK, link.path)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and link.wanted.states:
            is_new = self._take_folder(link)
        elif not is_folder and link.wanted.is_file:
            is_new = self._take_file(link, status)
        else:
            return
        if not is_new:
            self._skipped.add(REPEATED_LINK, link.path)

    def _take_folder(self, found: _Entry) -> bool:
        """Add a folder to those to visit if it may hold more files; return whether it is new."""
        if found.real == self._output:
            self._skipped.add(SEQPACK_OUTPUT, found.path)
            return True
        before = self._visited.get(found.real, NOTHING.states)
        states = found.wanted.states - before
        if not states:
            return False
        self._visited[found.real] = before | states
        self._folders.append(found._replace(wanted=found.wanted._replace(states=states)))
        self.has_match |= self._end in states
        return True

    def _take_file(self, found: _Entry, status: os.stat_result) -> bool:
        """Add a file if it is to be read; return whether it is new."""
        self.has_match = True
        kind = find_file_format(found.path)
        if not stat.S_ISREG(status.st_mode):
            self._skipped.add(SPECIAL_FILE, found.path)
        elif not (kind.format or found.wanted.is_named or self._takes_all):
            self._skipped.add(UNKNOWN_SUFFIX, found.path, found.real)
        elif found.real in self._found:
            return False
        else:
            size, modified = status.st_size, status.st_mtime_ns
            self._found[found.real] = FoundFile(
                found.real, found.path, size, modified, kind, found.wanted.is_named, found.match
            )
        return True


def read_error(path: str, error: OSError) -> MachineError:
    """Return the error about an input that cannot be read."""
    return MachineError(f"{path}: {error.strerror or error}")


def _add_slash(folder: str) -> str:
    return os.path.join(folder, "") if folder else ""  # noqa: PTH118


def _compile(part: str) -> Callable[[str], object]:
    """Return the test for one part of a pattern; hidden names need a leading dot."""
    matches = re.compile(fnmatch.translate(part)).match
    if part.startswith("."):
        return matches
    return lambda name: not name.startswith(".") and matches(name)
