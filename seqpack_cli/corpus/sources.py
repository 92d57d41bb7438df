"""Find the source files of the inputs and their formats, in one fixed order.

An input is a file, a folder (every file below it with a known suffix, sorted by the bytes of the
paths), a glob, a URL of any of these, or `-`, whose bytes were copied to a file. No file is opened
here: 100,000 files take about a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seqpack_cli.corpus.file_choice import FileChoice
from seqpack_cli.corpus.folder_walk import FoundFile, Search
from seqpack_cli.corpus.formats import (
    BINARY_FORMATS,
    COMPRESSION_OF_SUFFIX,
    TEXT_FORMATS,
    Formats,
    find_file_format,
)
from seqpack_cli.corpus.input_files import find_input_files, naming_line
from seqpack_cli.corpus.options import FileOptions
from seqpack_cli.corpus.pairs import Pair
from seqpack_cli.corpus.remote_files import list_statuses
from seqpack_cli.corpus.skipped import EXCLUDED, NOT_INCLUDED, UNNAMED_JSON, Skipped
from seqpack_cli.errors import FolderError, OptionError, join_items
from seqpack_cli.files.inputs import Input
from seqpack_cli.files.objects import map_ahead
from seqpack_cli.files.places import Place, find_real_name, is_url

STANDARD_INPUT = "-"
NUM_THREADS = 32  # that ask for objects, if several are named


class Source(NamedTuple):
    """One input file."""

    path: str  # as the user would type it
    format: str  # one of those that the command reads
    document: str  # what one document is: a "line", a "paragraph", a "row" or the whole "file"
    num_bytes: int
    compression: str = ""
    delimiter: str = ","  # of a csv file
    spool: str | None = None  # the file with the bytes of standard input
    # st_mtime_ns, or an object's version, when it was found, to notice a later change
    modified: int | str | None = None
    index_file: Source | None = None  # the .idx beside a .bin

    @property
    def location(self) -> str:
        """Return the path to open."""
        return self.spool or self.path

    @property
    def input(self) -> Input:
        """Return the reader of the file."""
        return Input(self.location)

    @property
    def name(self) -> str:
        """Return the path as written to files: in UTF-8, whatever the encoding of the locale is."""
        return os.fsencode(self.path).decode(errors="surrogateescape")

    @property
    def is_cut_anywhere(self) -> bool:
        """Return whether the file can be cut at line ends, so that workers can share it."""
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
    document: str = "line",
    patterns: FileOptions | None = None,
    spool: str | None = None,
    output: Place | None = None,
    formats: Formats = TEXT_FORMATS,
) -> tuple[list[Source], Skipped]:
    """Find the files that the inputs name.

    Args:
        inputs: files, folders and globs, taken in this order; a folder's files sorted by the bytes
            of their paths. A `ListedName` is not a glob.
        document: what one document of a text file is; other formats have their own.
        patterns: --include and --exclude; the list of --files-from is among the inputs.
        spool: the file with the bytes of `-`.
        output: the folder that the run writes; it is skipped below a folder or glob.
        formats: those that the command reads, or the one that all files have.

    Returns:
        The sources, each once however it is spelled or linked, and what was skipped.

    Raises:
        OptionError: an input does not exist, a suffix is refused, or a pattern matches nothing; a
            file of a pair is missing, or ids are wanted and a folder was written by seqpack.
        FolderError: the output contains an input.
        MachineError: something cannot be read.
    """
    sources: dict[str, Source] = {}  # by their real paths
    indexes: set[str] = set()
    folder = None if output is None else find_real_name(output)
    search = _begin_search(inputs, patterns, folder, formats)
    for (file, index), source in _iter_found(inputs, document, spool, search):
        if folder is not None and _is_below(file.real, folder):
            raise FolderError(f"{output}: contains the input {file.path}", "choose another -o")
        _add(sources, source, file)
        indexes.update(() if index is None else (index.real,))
    search.choice.check_used()
    search.skipped.remove_read(indexes.union(sources))
    if not sources:
        raise _describe_nothing(inputs, search.skipped, formats)
    return list(sources.values()), search.skipped


def _begin_search(
    inputs: Sequence[str], patterns: FileOptions | None, output: str | None, formats: Formats
) -> Search:
    choice = FileChoice(patterns or FileOptions())
    takes_all = formats.chosen is not None
    return Search(Skipped(), choice, takes_all, output, list_statuses(inputs), formats)


def _iter_found(
    inputs: Sequence[str], document: str, spool: str | None, search: Search
) -> Iterator[tuple[Pair, Source]]:
    """Yield the files of each input with what is known about them."""

    def find(name: str) -> list[tuple[Pair, Source]]:
        with naming_line(name):
            pairs = _find_input_files(name, spool, search)
            return [(pair, _describe(pair, document, search.formats)) for pair in pairs]

    ahead = map_ahead(find, inputs, num_threads=_count_threads(inputs))
    for name, found in zip(inputs, ahead, strict=True):
        for pair, source in found:
            yield pair, source._replace(spool=spool) if name == STANDARD_INPUT else source


def _add(sources: dict[str, Source], source: Source, file: FoundFile) -> None:
    """Add a source, or name an earlier one of the same file by its real path."""
    earlier = sources.setdefault(file.real, source)
    if earlier is not source and not _is_real(earlier, file) and _is_real(source, file):
        sources[file.real] = _rename(earlier, source)


def _describe_nothing(inputs: Sequence[str], skipped: Skipped, formats: Formats) -> OptionError:
    """Return the error about inputs without a file to read."""
    seen = f" ({skipped})" if skipped.count() else ""
    if {EXCLUDED, NOT_INCLUDED} & set(skipped.count()):
        return OptionError(
            f"{join_items(inputs)}: no file left to read{seen}",
            hint="change --include or --exclude",
        )
    if UNNAMED_JSON in skipped.count():
        hint = "pass --include '*.json' if these files are arrays of objects"
        return OptionError(f"{join_items(inputs)}: no file with a known suffix{seen}", hint)
    known = " ".join([*formats.of_suffix, *COMPRESSION_OF_SUFFIX])
    return OptionError(
        f"{join_items(inputs)}: no file with a known suffix{seen}",
        hint=f"known suffixes: {known}; or {formats.hint}",
    )


def _find_input_files(name: str, spool: str | None, search: Search) -> list[Pair]:
    if name != STANDARD_INPUT or spool is None:
        return find_input_files(name, search)
    status = os.stat(spool)  # noqa: PTH116
    kind = find_file_format(name)
    file = FoundFile(name, name, status.st_size, status.st_mtime_ns, kind, is_named=True)
    return [(file, None)]


def _count_threads(inputs: Sequence[str]) -> int:
    """Return the number of threads that find the inputs: requests for objects take turns in one."""
    most = max(NUM_THREADS if is_url(name) else 1 for name in inputs)
    return min(most, len(inputs))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _is_real(source: Source, file: FoundFile) -> bool:
    """Return whether the path of a source contains no link."""
    return os.path.abspath(source.path) == file.real  # noqa: PTH100 - follows none


def _rename(earlier: Source, source: Source) -> Source:
    """Name a file by its real path, unless the suffix there means another format."""
    renamed = earlier._replace(path=source.path, index_file=source.index_file)
    return renamed if renamed == source else earlier


def _describe(pair: Pair, document: str, formats: Formats) -> Source:
    file, index = pair
    found = _find_format(pair, formats)
    unit = document if found == "text" else "line" if found == "jsonl" else "row"
    if file.kind.compression and found in BINARY_FORMATS:
        raise OptionError(f"{file.path}: a compressed {found} file", hint="decompress it")
    # Parquet is compressed inside, whatever suffix follows in its name.
    compression = "" if found == "parquet" else file.kind.compression
    return Source(
        file.path,
        found,
        unit,
        file.num_bytes,
        compression,
        file.kind.delimiter,
        modified=file.modified,
        index_file=None if index is None else _describe((index, None), document, formats),
    )


def _find_format(pair: Pair, formats: Formats) -> str:
    file, index = pair
    if formats.chosen is not None:
        return formats.chosen
    if index is not None and index.kind.format is not None:
        return index.kind.format
    if file.kind.refused is not None:
        hint = formats.refused[file.kind.refused]
        raise OptionError(f"{file.path}: {file.kind.refused} files are not supported", hint=hint)
    found = file.kind.format or formats.fallback
    if found is None:
        known = " ".join(formats.of_suffix)
        raise OptionError(f"{file.path}: expected one of the suffixes {known}", hint=formats.hint)
    return found
