"""Inputs as the user names them -> source files with their formats, in one fixed order.

An input is a file, a folder (every file below it with a known suffix, sorted by the bytes of the
paths), a glob, a URL of any of these, or `-`, whose bytes were spooled to a file. Nothing is opened
here: 100,000 files take about a second.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seqpack_cli.corpus.formats import (
    COMPRESSION_OF_SUFFIX,
    FORMAT_OF_SUFFIX,
    REFUSED_SUFFIXES,
    FileKind,
    find_kind,
)
from seqpack_cli.corpus.object_listing import find_objects
from seqpack_cli.errors import MachineError, OptionError, join_items
from seqpack_cli.remote.url import LOCAL_PROTOCOLS, is_url, parse_place, split_url

STANDARD_INPUT = "-"


class Source(NamedTuple):
    """One input file."""

    path: str  # as the user would type it, the name kept in the manifest
    format: str  # one of FORMATS
    document: str  # what one document is: a "line", a "paragraph", a "row" or the whole "file"
    num_bytes: int
    compression: str = ""
    delimiter: str = ","  # of a csv file
    spool: str | None = None  # where the bytes of standard input lie
    # st_mtime_ns, or an object's version, when it was found: what changes later is noticed
    modified: int | str | None = None

    @property
    def location(self) -> str:
        """Give the path to open."""
        return self.spool or self.path

    @property
    def is_cut_anywhere(self) -> bool:
        """Say whether a record begins after any line end, so that workers can share the file."""
        return not self.compression and self.document in ("line", "paragraph")


class SourceRange(NamedTuple):
    """The records of a source that begin in bytes start to end."""

    source_index: int
    source: Source
    start: int
    end: int


def find_sources(
    inputs: Sequence[str],
    *,
    file_format: str = "auto",
    document: str = "line",
    spool: str | None = None,
) -> tuple[list[Source], list[str]]:
    """Find the files that the inputs name.

    Args:
        inputs: files, folders and globs, taken in this order; a folder's files sorted by the bytes
            of their paths.
        file_format: one of FORMATS for all files, or "auto" to go by the suffix.
        document: what one document of a text file is; other formats have their own.
        spool: the file that holds what came through `-`.

    Returns:
        The sources, each once however it is spelled, and the files below folders that were passed
        over for their suffix.

    Raises:
        OptionError: an input does not exist, or a file has a suffix that can not be read.
        MachineError: a folder can not be read.
    """
    sources: dict[str, Source] = {}  # by what they are, however they are spelled
    passed_over: list[str] = []
    for name in inputs:
        if name == STANDARD_INPUT and spool is not None:
            status = os.stat(spool)  # noqa: PTH116
            found = _describe_file(name, name, status, find_kind(name), is_named=True)
            sources[name] = _describe(found, file_format, document)._replace(spool=spool)
            continue
        for file in _find_files(name):
            is_wanted = file.is_named or file_format != "auto" or file.kind.format
            if not is_wanted:
                passed_over.append(file.path)
            elif file.absolute not in sources:
                sources[file.absolute] = _describe(file, file_format, document)
    if not sources:
        known = " ".join([*FORMAT_OF_SUFFIX, *COMPRESSION_OF_SUFFIX])
        raise OptionError(
            f"{join_items(inputs)}: no file with a known suffix",
            hint=f"known are {known}; pass --format text to take every file",
        )
    return list(sources.values()), passed_over


class _File(NamedTuple):
    """A file that an input names, or that lies below a folder that one names."""

    absolute: str
    path: str
    num_bytes: int
    modified: int | str
    is_regular: bool
    kind: FileKind
    is_named: bool


def _describe_file(
    absolute: str, path: str, status: os.stat_result, kind: FileKind, *, is_named: bool
) -> _File:
    is_regular = stat.S_ISREG(status.st_mode)
    return _File(
        absolute, path, status.st_size, status.st_mtime_ns, is_regular, kind, is_named=is_named
    )


def _find_files(name: str) -> Iterator[_File]:
    if is_url(name) and split_url(name)[0] not in LOCAL_PROTOCOLS:
        for url, below, num_bytes, version, is_named in find_objects(name):
            kind = find_kind(below)
            yield _File(url, url, num_bytes, version, True, kind, is_named=is_named)
        return
    if is_url(name):
        name = str(parse_place(name))
    for match in _expand(name):
        absolute = os.path.abspath(match)  # noqa: PTH100 - keeps links
        try:
            status = os.stat(match)  # noqa: PTH116
        except OSError as error:  # a link to nowhere
            raise _irregular_error(match) from error
        if not stat.S_ISDIR(status.st_mode):
            yield _describe_file(absolute, match, status, find_kind(match), is_named=True)
            continue
        folder = str(Path(match))
        prefix = "" if folder == "." else os.path.join(folder, "")  # noqa: PTH118
        root = os.path.join(absolute, "")  # noqa: PTH118
        for below, entry in sorted(_walk(folder, ""), key=lambda found: os.fsencode(found[0])):
            try:
                status = entry.stat()
            except OSError:
                continue  # a link to nowhere
            if stat.S_ISREG(status.st_mode):
                kind = find_kind(below)
                yield _describe_file(root + below, prefix + below, status, kind, is_named=False)


def _expand(name: str) -> list[str]:
    if os.path.exists(name):  # noqa: PTH110
        return [name]
    matches = sorted(glob.glob(name, recursive=True), key=os.fsencode)  # noqa: PTH207
    if not matches:
        raise OptionError(
            f"{name}: no such file or folder",
            hint="name a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'",
        )
    return matches


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Give the files below a folder that are not hidden, by their path from there."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, f"{prefix}{entry.name}{os.sep}")
                else:
                    yield prefix + entry.name, entry
    except OSError as error:  # passing it over would lose what is in it
        raise MachineError(f"{folder}: {error.strerror or error}") from error


def _describe(file: _File, file_format: str, document: str) -> Source:
    if not file.is_regular:
        raise _irregular_error(file.path)
    kind = file.kind
    if file_format == "auto" and kind.refused is not None:
        hint = REFUSED_SUFFIXES[kind.refused]
        raise OptionError(f"{file.path}: {kind.refused} files are not read", hint=hint)
    found = file_format if file_format != "auto" else kind.format or "text"
    unit = document if found == "text" else "line" if found == "jsonl" else "row"
    # Parquet has its own compression inside; what its name ends with says nothing.
    compression = "" if found == "parquet" else kind.compression
    return Source(
        file.path,
        found,
        unit,
        file.num_bytes,
        compression,
        kind.delimiter,
        modified=file.modified,
    )


def _irregular_error(path: str) -> OptionError:
    return OptionError(f"{path}: not a regular file, expected a file, a folder or a glob")
