"""Find the files below a folder or of a glob, each once, however many links lead to it.

One walk serves both: a folder is a glob that matches everything. Links are followed after all real
folders, so that a file is named by its real path if the walk finds it there. No folder is visited
twice for the same part of a pattern, so loops of links end. 100,000 files take about a second.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqpack_cli.corpus.file_choice import FileChoice
from seqpack_cli.corpus.formats import FileFormat, Formats, find_file_format
from seqpack_cli.corpus.path_pattern import NOTHING, Match, PathPattern
from seqpack_cli.corpus.skipped import (
    DANGLING_LINK,
    EXCLUDED,
    REPEATED_LINK,
    SEQPACK_OUTPUT,
    SPECIAL_FILE,
    VANISHED,
    Skipped,
)
from seqpack_cli.errors import MachineError
from seqpack_cli.files.manifest import RUN_NAMES, is_run_folder

MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


class FoundFile(NamedTuple):
    """A file that an input names."""

    real: str  # its path with all links resolved: identifies the file
    path: str
    num_bytes: int
    modified: int | str
    kind: FileFormat
    is_named: bool  # by the user or matched by a glob, not only found below a folder
    match: str = ""  # what a glob matched: the file, or a folder above it


class Search(NamedTuple):
    """What is wanted below folders and globs."""

    skipped: Skipped  # collects what is not read
    choice: FileChoice
    takes_all: bool  # also files with unknown suffixes
    output: str | None  # the real path of a folder to skip
    statuses: Mapping[str, dict[str, Any]]  # of objects, by URL, that need no request
    formats: Formats  # that the command reads


class _Entry(NamedTuple):
    """An entry of a folder."""

    path: str
    real: str
    match: str
    wanted: Match


class FolderWalk:
    """A walk below one folder.

    Args:
        parts: the pattern of the paths below it, split at slashes, the last one empty if only
            folders shall match; without parts everything matches that is not hidden.
    """

    def __init__(self, parts: Sequence[str], search: Search) -> None:
        self._pattern = PathPattern(parts)
        self._has_parts = bool(parts)
        self._skipped, self._choice, self._takes_all, self._output, _, self._formats = search
        self._found: dict[str, FoundFile] = {}
        self._visited: dict[str, frozenset[int]] = {}
        self._folders: list[_Entry] = []
        self._links: list[tuple[bytes, _Entry]] = []  # by the bytes of their paths
        self._excluded: set[str] = set()  # real paths: no link leads back to them
        self._root_length = 0
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
        self._root_length = len(_add_slash(path))
        wanted = NOTHING._replace(states=self._pattern.start)
        self._take_folder(_Entry(path, real, path, wanted))
        while self._folders or self._links:
            if self._folders:
                self._visit(self._folders.pop())
            else:
                self._follow(heapq.heappop(self._links)[1])
        found = sorted(self._found.values(), key=lambda file: os.fsencode(file.path))
        return sorted(found, key=lambda file: os.fsencode(file.match)) if self._has_parts else found

    def _visit(self, folder: _Entry) -> None:
        entries = self._list(folder.path)
        is_run = any(entry.name in RUN_NAMES for entry in entries)
        if is_run and is_run_folder(Path(folder.path)):
            self._skipped.add(SEQPACK_OUTPUT, folder.path or os.curdir)
            return
        prefix, real_prefix = _add_slash(folder.path), _add_slash(folder.real)
        is_below = self._pattern.end in folder.wanted.states
        for entry in entries:
            name = entry.name
            wanted = self._pattern.match(name, folder.wanted.states)
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

    def _take(self, entry: os.DirEntry[str], found: _Entry) -> None:
        try:
            if entry.is_symlink():
                heapq.heappush(self._links, (os.fsencode(found.path), found))
            elif entry.is_dir(follow_symlinks=False):
                if found.wanted.states and not self._skips(found, is_folder=True):
                    self._take_folder(found)
            elif found.wanted.is_file and not self._skips(found, is_folder=False):
                self._take_file(found, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            self._skipped.add(VANISHED, found.path)
        except OSError as error:
            raise read_error(found.path, error) from error

    def _skips(self, found: _Entry, *, is_folder: bool) -> bool:
        """Return whether --include and --exclude leave out a file, or all files of a folder."""
        judge = self._choice.judge_folder if is_folder else self._choice.judge_file
        reason = judge(found.path[self._root_length :])
        if reason:
            self.has_match |= found.wanted.is_file or self._pattern.end in found.wanted.states
            self._skipped.add(reason, found.path, found.real)
            if reason == EXCLUDED:
                self._excluded.add(found.real)
        return bool(reason)

    def _is_excluded(self, real: str) -> bool:
        """Return whether a real path was left out by --exclude, or a folder above it was."""
        while self._excluded and real:
            if real in self._excluded:
                return True
            real = real.rpartition("/")[0]
        return False

    def _follow(self, link: _Entry) -> None:
        if self._choice.judge_file(link.path[self._root_length :]) == EXCLUDED:
            self._skips(link, is_folder=False)
            return
        try:
            status = os.stat(link.path)  # noqa: PTH116
            link = link._replace(real=os.path.realpath(link.path))
        except OSError as error:
            if error.errno not in MISSING_ERRNOS:
                raise read_error(link.path, error) from error
            self._skipped.add(DANGLING_LINK, link.path)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        is_wanted = bool(link.wanted.states) if is_folder else link.wanted.is_file
        if not is_wanted or self._skips(link, is_folder=is_folder):
            return
        if self._is_excluded(link.real):
            self._skipped.add(EXCLUDED, link.path)
        elif not (self._take_folder(link) if is_folder else self._take_file(link, status)):
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
        self.has_match |= self._pattern.end in states
        return True

    def _take_file(self, found: _Entry, status: os.stat_result) -> bool:
        """Add a file if it is to be read; return whether it is new."""
        self.has_match = True
        kind = find_file_format(found.path, self._formats)
        if not stat.S_ISREG(status.st_mode):
            self._skipped.add(SPECIAL_FILE, found.path)
        elif kind.unnamed and not (self._takes_all or self._is_named(found)):
            self._skipped.add(kind.unnamed, found.path, found.real)
        elif found.real in self._found:
            return False
        else:
            size, modified = status.st_size, status.st_mtime_ns
            self._found[found.real] = FoundFile(
                found.real, found.path, size, modified, kind, found.wanted.is_named, found.match
            )
        return True

    def _is_named(self, found: _Entry) -> bool:
        """Return whether a file matches the glob or --include, not only a folder above it."""
        return found.wanted.is_named or self._choice.is_named(found.path[self._root_length :])


def read_error(path: str, error: OSError) -> MachineError:
    """Return the error about an input that cannot be read."""
    return MachineError(f"{path}: {error.strerror or error}")


def _add_slash(folder: str) -> str:
    return os.path.join(folder, "") if folder else ""  # noqa: PTH118
