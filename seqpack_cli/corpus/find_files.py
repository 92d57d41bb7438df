"""Find the source files of the inputs and their formats, in one fixed order.

An input is a file, a folder (every file below it with a known suffix, sorted by the bytes of the
paths), a glob, a URL of any of these, or `-`, whose bytes were copied to a file. One walk finds
local files, one listing those of a URL; both ask the same patterns. No file is opened: 100,000 take
about a second.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fnmatch
import glob
import heapq
import json
import os
import re
import shlex
import stat
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqpack_cli.corpus.options import (
    BINARY_FORMATS,
    COMPRESSION_OF_SUFFIX,
    TEXT_FORMATS,
    FileFormat,
    FileOptions,
    Formats,
    find_file_format,
)
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source, read_standard_input
from seqpack_cli.errors import (
    FolderError,
    MachineError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)
from seqpack_cli.files.inputs import Input, ListedName, spell_inputs
from seqpack_cli.files.manifest import RUN_NAMES, find_format, is_run_folder
from seqpack_cli.files.objects import (
    PACKAGES,
    AnyPath,
    Url,
    map_ahead,
    naming_requests,
    read_version,
)
from seqpack_cli.files.places import (
    Place,
    check_address,
    find_local_name,
    find_real_name,
    is_url,
    parse_place,
    split_url,
    suggest_name,
)
from seqpack_cli.limits import LIMITS

NUM_THREADS = 32  # that ask for objects, if several are named
MISSING_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
MISSING = (FileNotFoundError, NotADirectoryError, ValueError, FolderError)
MAX_SHOWN_CHARACTERS = 200  # of a line that is not a path: LIST may be any file
REMOTE_HINT = "pass an object, a folder of objects, or a glob in quotes"
PARTNERS = {".bin": ".idx", ".idx": ".bin"}  # of an indexed dataset
DEEP = "**"
ALL, ROOT = -1, -2  # of a folder: everything in it matches; the walk begins there
# What `save_to_disk` of Hugging Face's datasets writes.
STATE_NAME, SPLITS_NAME = "state.json", "dataset_dict.json"
CACHE = re.compile(r"cache-[0-9a-f]{16}\w*\.arrow")
UNKNOWN_SUFFIX, UNNAMED_JSON, UNLISTED_ARROW = "unknown_suffix", "unnamed_json", "unlisted_arrow"
DANGLING_LINK, REPEATED_LINK, SPECIAL_FILE = "dangling_link", "repeated_link", "special_file"
SEQPACK_OUTPUT, VANISHED = "seqpack_output", "vanished"
EXCLUDED, NOT_INCLUDED = "excluded", "not_included"
NOUNS = {  # one, many
    UNKNOWN_SUFFIX: ("file with an unknown suffix", "files with unknown suffixes"),
    UNNAMED_JSON: ("JSON file that is not named", "JSON files that are not named"),
    UNLISTED_ARROW: (
        "Arrow file that is not data of a saved dataset",
        "Arrow files that are not data of a saved dataset",
    ),
    DANGLING_LINK: ("dangling link", "dangling links"),
    REPEATED_LINK: ("link to something already read", "links to something already read"),
    SPECIAL_FILE: ("pipe, socket or device", "pipes, sockets or devices"),
    SEQPACK_OUTPUT: ("folder written by seqpack", "folders written by seqpack"),
    VANISHED: ("entry that disappeared", "entries that disappeared"),
    EXCLUDED: ("file or folder that matches --exclude", "files or folders that match --exclude"),
    NOT_INCLUDED: (
        "file or folder that does not match --include",
        "files or folders that do not match --include",
    ),
}


class Skipped:
    """The entries below the inputs that were skipped, by reason: for one note, and `run.json`."""

    def __init__(self) -> None:
        self._real_paths: dict[str, dict[str, str]] = {reason: {} for reason in NOUNS}  # by path

    def add(self, reason: str, path: str, real: str = "") -> None:
        """Add an entry, with its real path if it may be a file that another input names."""
        self._real_paths[reason][path] = real

    def has(self, reason: str, path: str) -> bool:
        """Return whether an entry was skipped for a reason."""
        return path in self._real_paths[reason]

    def remove(self, reason: str, real_paths: Container[str]) -> None:
        """Remove files that are read through another input or link, or belong to what is read."""
        found = self._real_paths[reason].items()
        self._real_paths[reason] = {path: real for path, real in found if real not in real_paths}

    def count(self) -> dict[str, int]:
        """Return the number of entries by reason, without reasons that did not occur."""
        return {reason: len(paths) for reason, paths in self._real_paths.items() if paths}

    def __str__(self) -> str:
        """List the entries on one line.

        >>> skipped = Skipped()
        >>> skipped.add(DANGLING_LINK, "data/latest.txt")
        >>> str(skipped)
        'skipped 1 dangling link: data/latest.txt'
        """
        found = []
        for reason, count in self.count().items():
            paths = sorted(self._real_paths[reason], key=os.fsencode)
            found.append(f"{count:,} {NOUNS[reason][count > 1]}: {join_items(paths)}")
        return f"skipped {'; '.join(found) or 'nothing'}"


class FoundFile(NamedTuple):
    """A file that an input names."""

    real: str  # its path with all links resolved: identifies the file
    path: str
    num_bytes: int
    modified: int | str
    kind: FileFormat
    is_named: bool  # by the user or matched by a glob, not only found below a folder
    match: str = ""  # what a glob matched: the file, or a folder above it


Pair = tuple[FoundFile, FoundFile | None]  # a file, and the index beside it


def list_inputs(inputs: AnyPath | Sequence[AnyPath], options: FileOptions) -> list[str]:
    """Return the inputs of a run, then those of its list, one per line or between NULs.

    Raises:
        OptionError: the list does not exist, is empty, or names something that is not a path.
        MachineError: the list cannot be read.
    """
    names = spell_inputs(inputs)
    if options.files_from is None:
        if not names:
            raise ValueError("inputs is empty, expected at least one path")
        return names
    path = str(options.files_from)
    if path == STANDARD_INPUT and STANDARD_INPUT in names:
        raise OptionError(
            f"--files-from {STANDARD_INPUT} conflicts with the input {STANDARD_INPUT}",
            hint="write the list to a file",
        )
    data = _read_list(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise OptionError(
            f"--files-from {path}: found UTF-16, expected UTF-8",
            hint="convert it: iconv -f UTF-16 -t UTF-8",
        )
    lines = data.split(b"\0")
    if len(lines) == 1:
        data = data.removeprefix(codecs.BOM_UTF8)
        lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    listed = [
        ListedName("./-" if line == b"-" else os.fsdecode(line), f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not listed:
        raise OptionError(f"--files-from {path}: lists no file")
    return [*names, *listed]


def _read_list(path: str) -> bytes:
    if path == STANDARD_INPUT:
        return read_standard_input()
    source = Input(str(parse_place(path)))
    try:
        with source.open(source.find_version()[0]) as file:
            return file.read()
    except IsADirectoryError as error:
        raise OptionError(
            f"--files-from {path}: a folder, expected a file with one path per line",
            hint=f"pass {shlex.quote(path)} as INPUT",
        ) from error
    except MISSING as error:
        raise OptionError(f"--files-from {path}: no such file{suggest_name(path)}") from error
    except OSError as error:
        raise MachineError(f"--files-from {path}: {error.strerror or error}") from error


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
    search = _Search(inputs, patterns or FileOptions(), output, formats)

    def find(name: str) -> list[tuple[Pair, Source]]:
        try:
            pairs = search.find_input(name, spool)
            return [(pair, _describe(pair, document, formats)) for pair in pairs]
        except SeqpackError as error:
            if not isinstance(name, ListedName):
                raise
            raise type(error)(f"{name.place}: {error.message}", error.hint) from error

    sources: dict[str, Source] = {}  # by their real paths
    read: set[str] = set()
    num_threads = NUM_THREADS if any(map(is_url, inputs)) else 1
    ahead = map_ahead(find, inputs, num_threads=min(num_threads, len(inputs)))
    for name, found in zip(inputs, ahead, strict=True):
        for (file, index), source in found:
            if search.output is not None and file.real.startswith(_add_slash(search.output)):
                raise FolderError(f"{output}: contains the input {file.path}", "choose another -o")
            source = source._replace(spool=spool) if name == STANDARD_INPUT else source
            earlier = sources.setdefault(file.real, source)
            renamed = earlier._replace(path=source.path, index_file=source.index_file)
            # Of two spellings of a file the one without links names it.
            is_real = os.path.abspath(source.path) == file.real  # noqa: PTH100 - follows none
            was_real = os.path.abspath(earlier.path) == file.real  # noqa: PTH100
            if is_real and not was_real and renamed == source:
                sources[file.real] = source
            read |= {file.real} if index is None else {file.real, index.real}
    search.check_used()
    for reason in (UNKNOWN_SUFFIX, UNNAMED_JSON, UNLISTED_ARROW, EXCLUDED, NOT_INCLUDED):
        search.skipped.remove(reason, read)
    if not sources:
        raise _describe_nothing(inputs, search.skipped, formats)
    return list(sources.values()), search.skipped


def _describe_nothing(inputs: Sequence[str], skipped: Skipped, formats: Formats) -> OptionError:
    """Return the error about inputs without a file to read."""
    counts = skipped.count()
    what, hint = "no file with a known suffix", f"or {formats.hint}"
    if {EXCLUDED, NOT_INCLUDED} & set(counts):
        what, hint = "no file left to read", "change --include or --exclude"
    elif UNNAMED_JSON in counts:
        hint = "pass --include '*.json' if these files are arrays of objects"
    else:
        known = " ".join([*formats.of_suffix, *COMPRESSION_OF_SUFFIX])
        hint = f"known suffixes: {known}; {hint}"
    seen = f" ({skipped})" if counts else ""
    return OptionError(f"{join_items(inputs)}: {what}{seen}", hint)


def _describe(pair: Pair, document: str, formats: Formats) -> Source:
    file, index = pair
    found = formats.chosen or (None if index is None else index.kind.format)
    if found is None:
        if file.kind.refused is not None:
            what = f"{file.path}: {file.kind.refused} files are not supported"
            raise OptionError(what, hint=formats.refused[file.kind.refused])
        found = file.kind.format or formats.fallback
    if found is None:
        known = " ".join(formats.of_suffix)
        raise OptionError(f"{file.path}: expected one of the suffixes {known}", hint=formats.hint)
    if file.kind.compression and found in BINARY_FORMATS:
        raise OptionError(f"{file.path}: a compressed {found} file", hint="decompress it")
    return Source(
        file.path,
        found,
        document if found == "text" else "line" if found == "jsonl" else "row",
        file.num_bytes,
        # Parquet is compressed inside, whatever suffix follows in its name.
        "" if found == "parquet" else file.kind.compression,
        file.kind.delimiter,
        modified=file.modified,
        index_file=None if index is None else _describe((index, None), document, formats),
    )


class _Pattern:
    """A glob of paths below a folder: `*` stays within a name, `**` matches any number of folders.

    Args:
        parts: the glob, split at slashes, the last one empty if only folders shall match.
        hidden: whether wildcards match names that begin with a dot.
    """

    def __init__(self, parts: Sequence[str], *, hidden: bool) -> None:
        names = [part for part in parts if part]
        self.only_folders = parts[-1:] == [""]
        while self.only_folders and names[-1:] == [DEEP]:
            names.pop()  # matches all folders, so everything in them
        dot = "" if hidden else r"(?!\.)"
        any_name = rf"{dot}[^/]+"
        exact, prefixes = "", []  # that lead to folders in which something may match
        for number, part in enumerate(names, 1):
            if part == DEEP:
                prefixes.append(rf"{exact.rstrip('/')}|{exact}(?:{any_name}/)*{any_name}")
                exact += rf"(?:{any_name}/)*" + (any_name if number == len(names) else "")
            else:
                exact += ("" if part.startswith(".") else dot) + _translate(part)
                prefixes.append(exact)
                exact += "/" if number < len(names) else ""
        self.takes_all = not names
        below = "(?:/.*)?" if names and not self.only_folders else "/.*" if names else ".*"
        self.matches = re.compile(exact, re.DOTALL).fullmatch
        self.covers = re.compile(exact + below, re.DOTALL).fullmatch  # it, or a folder above it
        self._prefixes = [re.compile(each, re.DOTALL).fullmatch for each in prefixes]

    def leads_to(self, folder: str) -> set[int]:
        """Return the parts up to which a folder matches; without any nothing in it can match."""
        if not folder:
            return {ROOT}
        return {part for part, matches in enumerate(self._prefixes) if matches(folder)}


def _translate(part: str) -> str:
    """Return the regular expression of one part of a glob."""
    pieces = re.split(r"(\*+|\?|\[!?\]?[^\]]*\])", part)
    simple = {"*": "[^/]*", "?": "[^/]"}
    return "".join(
        simple.get(piece[:1] if piece.startswith("*") else piece)
        or (fnmatch.translate(piece)[4:-3] if piece.startswith("[") and len(piece) > 1 else "")
        or re.escape(piece)
        for piece in pieces
    )


class _Search:
    """Finds the files of inputs, and notes which are skipped and which patterns were used."""

    def __init__(
        self, inputs: Sequence[str], options: FileOptions, output: Place | None, formats: Formats
    ) -> None:
        self.skipped = Skipped()
        self.output = None if output is None else find_real_name(output)
        self.formats = formats
        self._include = [_parse_choice(pattern) for pattern in options.include]
        self._exclude = [_parse_choice(pattern) for pattern in options.exclude]
        spelled = [("--include", each) for each in options.include]
        spelled += [("--exclude", each) for each in options.exclude]
        self._unused = dict(zip([*self._include, *self._exclude], spelled, strict=True))
        self._roots: list[str] = []  # inputs whose files are chosen
        self._statuses = _list_statuses(inputs)

    def find_input(self, name: str, spool: str | None) -> list[Pair]:
        """Find the files of a path, a URL or a glob, each with the index beside it if it has one.

        Raises:
            OptionError: nothing has that name, a file of a pair is missing, or ids are wanted and
                it is a folder written by seqpack.
            MachineError: something cannot be read.
        """
        if name == STANDARD_INPUT and spool is not None:
            file = self.make(name, name, os.stat(spool), is_named=True)  # noqa: PTH116
            return [(file, None)]
        is_listed = isinstance(name, ListedName)
        name = find_local_name(name)
        try:
            files = self._find(name, is_listed=is_listed)
        except OptionError:
            index = self._find_one(f"{name}.idx") if self.formats.has_pairs else None
            if index is None:
                if self.formats.has_pairs and self._find_one(f"{name}.bin"):
                    raise _missing_pair_error(f"{name}.idx", f"{name}.bin") from None
                raise
            files = [index]
        files = self._choose_saved(files, name)
        pairs: list[Pair] = [(file, None) for file in files]
        if self.formats.has_pairs:
            pairs = self._join_pairs(files)
        if not pairs and self.formats.reads_ids and is_run_folder(folder := parse_place(name)):
            if find_format(folder) == "seqpack.tokens":
                hint = f"run seqpack pack {shlex.quote(name)}"
                raise OptionError(f"{name}: already a token store", hint)
            raise OptionError(f"{name}: written by seqpack, expected the output of another tool")
        return pairs

    def check_used(self) -> None:
        """Raise OptionError if a pattern of --include or --exclude has matched nothing."""
        for option, pattern in self._unused.values():
            if not self._roots:
                raise OptionError(
                    f"{option} {quote(pattern)}: no input is a folder or a glob, and a file that "
                    "is named is always read",
                    hint="pass the folder of the files",
                )
            hint = "write a file name, such as '*.csv', or a path below the folder, such as "
            hint += "'drafts/**'"
            if any(part.startswith(".") and part.strip(".") for part in pattern.split("/")):
                hint = f"leave out {option}: hidden files are skipped anyway"
            what = f"{option} {quote(pattern)}: matches no file of {join_items(self._roots)}"
            raise OptionError(what, hint)

    def judge(self, path: str, *, is_folder: bool) -> str:
        """Return why a file, or all of a folder, is not read, "" if it is.

        Args:
            path: below the input.
        """
        if not self._include and not self._exclude:
            return ""
        shown = f"{path}/" if is_folder else path
        included = [each for each in self._include if each.covers(shown)]
        excluded = [each for each in self._exclude if each.covers(shown)]
        alive = [*self._include, *self._exclude] if is_folder else []
        alive = [each for each in alive if each.leads_to(path)]
        reason = EXCLUDED if excluded else ""
        if not reason and self._include and not included:
            reason = "" if any(each in self._include for each in alive) else NOT_INCLUDED
        # What would match below a folder that is skipped is never seen.
        for used in [*included, *excluded, *(alive if reason else ())]:
            if not is_folder or reason:
                self._unused.pop(used, None)
        return reason

    def take(self, file: FoundFile, below: str) -> bool:
        """Return whether a file below an input is to be read, as far as its suffix says."""
        is_named = file.is_named or any(each.matches(below) for each in self._include)
        reason = "" if is_named or self.formats.chosen is not None else _find_unnamed(file.kind)
        if reason:
            self.skipped.add(reason, file.path, file.real)
        return not reason

    def make(
        self, real: str, path: str, status: Any, *, is_named: bool, match: str = ""
    ) -> FoundFile:
        """Return what is known of a file."""
        kind = find_file_format(path, self.formats)
        return FoundFile(
            real, path, status.st_size, status.st_mtime_ns, kind, is_named=is_named, match=match
        )

    def _find(self, name: str, *, is_listed: bool) -> list[FoundFile]:
        find = self._find_objects if is_url(name) else self._find_local
        return find(name, is_listed=is_listed)

    def _find_one(self, name: str) -> FoundFile | None:
        """Find a file by its very name."""
        try:
            found = self._find(name, is_listed=True)
        except OptionError:
            return None
        return found[0] if [file.path for file in found] == [name] else None

    def _find_local(self, name: str, *, is_listed: bool) -> list[FoundFile]:
        """Find the regular files of a path or glob; a path that exists is never a glob."""
        try:
            status = os.stat(name)  # noqa: PTH116
        except (OSError, ValueError) as error:  # a NUL in it
            if isinstance(error, OSError) and error.errno not in MISSING_ERRNOS:
                raise _read_error(name, error) from error
            if isinstance(error, OSError) and os.path.islink(name):  # noqa: PTH114
                raise OptionError(f"{name}: dangling link, expected a file") from error
            return self._find_glob(name, is_listed=is_listed)
        if stat.S_ISDIR(status.st_mode):
            self._roots.append(name)
            folder = str(Path(name))
            return _Walk(self, None).find_files("" if folder == os.curdir else folder)
        if not stat.S_ISREG(status.st_mode):
            raise OptionError(f"{name}: not a regular file, expected a file, a folder or a glob")
        return [self.make(os.path.realpath(name), name, status, is_named=True)]

    def _find_glob(self, name: str, *, is_listed: bool) -> list[FoundFile]:
        """Find the files of a local glob: below the folder before its first wildcard.

        A part with brackets that exists under this very name is a name, not a wildcard.
        """
        shown = name if len(name) <= MAX_SHOWN_CHARACTERS else f"{name[:MAX_SHOWN_CHARACTERS]}…"
        what = f"{shown}: no such file or folder{suggest_name(name)}"
        if is_listed:
            hint = "list absolute paths, or paths relative to the current folder"
            raise OptionError(what, hint)
        self._roots.append(name)
        parts = name.split("/")
        for index, part in enumerate(parts):
            is_other = not fnmatch.fnmatchcase(part, part)
            if glob.has_magic(part) and not (
                is_other and os.path.exists("/".join(parts[: index + 1]))  # noqa: PTH110
            ):
                root = "/".join(parts[:index]) or ("/" if index else "")
                walk = _Walk(self, _Pattern(parts[index:], hidden=False))
                found = walk.find_files(root) if os.path.isdir(root or os.curdir) else []  # noqa: PTH112
                if walk.has_match:
                    return found
                break
        hint = "pass a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'"
        raise OptionError(what, hint)

    def _find_objects(self, name: str, *, is_listed: bool) -> list[FoundFile]:
        """Find the objects of a URL: one, all below a folder, or those of a glob.

        This is the only place where a URL may be a glob, and only if no object has that very name.
        """
        check_address(name)
        protocol, key = split_url(name)
        url = Url(f"{protocol}://{key.strip('/')}")
        if url.key.partition("/")[2].startswith("/"):  # s3fs would list the objects without it
            raise OptionError(f"{url}: two slashes after the bucket, expected one")
        status = self._statuses.get(str(url)) or url.find_status()
        if status is not None and status["type"] == "file" and not name.endswith("/"):
            return [self.make(str(url), str(url), _read_status(status), is_named=True)]
        self._roots.append(name)
        root, pattern = url, None
        what = f"{url}: no such object or folder"
        if status is None:
            parts = str(url).split("/")
            first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
            if is_listed or first is None:
                raise OptionError(what, None if is_listed else REMOTE_HINT)
            root, pattern = Url("/".join(parts[:first])), _Pattern(parts[first:], hidden=False)
        walk = _Walk(self, pattern, _list_objects(root))
        found = walk.find_files(str(root))
        if not walk.has_match:
            raise OptionError(what, REMOTE_HINT)
        return found

    def _join_pairs(self, files: list[FoundFile]) -> list[Pair]:
        """Join each .bin with the .idx beside it; a pair is excluded if one of its files is."""
        found = {file.path: file for file in files}
        suffixes = [file.path[-4:].lower() for file in files]
        names = [
            file.path[:-4] + PARTNERS[suffix] if suffix in PARTNERS else ""
            for file, suffix in zip(files, suffixes, strict=True)
        ]
        unknown = [name for name in names if name and name not in found]
        unknown = [name for name in unknown if not self.skipped.has(EXCLUDED, name)]
        num_threads = NUM_THREADS if unknown and is_url(unknown[0]) else 1
        for file in map_ahead(self._find_one, unknown, num_threads=num_threads):
            if file is not None:
                found[file.path] = file
        pairs: dict[str, Pair] = {}  # by the path of the .bin
        for file, suffix, name in zip(files, suffixes, names, strict=True):
            other = found.get(name)
            if other is None and self.skipped.has(EXCLUDED, name):
                self.skipped.add(EXCLUDED, file.path, file.real)
                continue
            if other is None and file.kind.format == "megatron":
                raise _missing_pair_error(name, file.path)
            pair = (other, file) if other is not None and suffix == ".idx" else (file, other)
            pairs.setdefault(pair[0].path, pair)
        return list(pairs.values())

    def _choose_saved(self, files: list[FoundFile], name: str) -> list[FoundFile]:
        """Choose the Arrow files below an input that a saved dataset lists, in its order.

        Raises:
            OptionError: a folder has several splits, or lacks a file that state.json lists.
        """
        below: dict[str, dict[str, FoundFile]] = {}  # the Arrow files of each folder, by name
        for file in files:
            if file.kind.format == "arrow" and not file.is_named:
                folder, _, last = file.path.rpartition("/")
                below.setdefault(folder, {})[last] = file
        splits: dict[str, list[str]] = {}
        for folder, found in below.items():
            above, _, split = folder.rpartition("/")
            root = next(iter(found.values())).match or name.rstrip("/")
            if root in (".", above) or above.startswith(f"{root}/"):
                splits.setdefault(above, []).append(split)
        for above, names in splits.items():  # reading all would mix train and test
            if _read_json(_join(above, SPLITS_NAME)) is not None:
                what = f"{above or '.'}: holds the splits {join_items(names)} of a dataset"
                hint = f"pass {shlex.quote(_join(above, max(names, key='train'.__eq__)))}"
                raise OptionError(f"{what}, expected one", hint)
        chosen: list[FoundFile] = []
        for file in files:
            folder = file.path.rpartition("/")[0]
            if file.kind.format != "arrow" or file.is_named:
                chosen.append(file)
            elif folder in below:
                chosen += self._choose_data(folder, below.pop(folder))
        return chosen

    def _choose_data(self, folder: str, files: dict[str, FoundFile]) -> list[FoundFile]:
        """Choose the files that a state.json lists, or all but caches if there is none."""
        path = _join(folder, STATE_NAME)
        listed = [name for name in files if not CACHE.fullmatch(name)]
        state = _read_json(path)
        with contextlib.suppress(TypeError, KeyError, AttributeError):  # of another program
            listed = [str(file["filename"]) for file in state["_data_files"]]
            if state.get("_indices_data_files") or state.get("_indices_files"):
                raise OptionError(
                    f"{path}: the rows are chosen by another file",
                    hint="save the dataset again, after dataset.flatten_indices()",
                )
            own = (STATE_NAME, "dataset_info.json")
            first = next(iter(files.values())).real.rpartition("/")[0]
            self.skipped.remove(UNNAMED_JSON, [_join(first, name) for name in own])
        for name in files.keys() - set(listed):
            self.skipped.add(UNLISTED_ARROW, files[name].path, files[name].real)
        for name in listed:  # one that --exclude leaves out exists
            if name not in files and self._find_one(_join(folder, name)) is None:
                raise OptionError(
                    f"{_join(folder, name)}: no such file, expected as in {STATE_NAME}",
                    hint="copy the whole folder again",
                )
        return [files[name] for name in listed if name in files]


class _Object(NamedTuple):
    """An object, or a folder of objects, with the methods of an os.DirEntry."""

    name: str
    status: dict[str, Any] | None  # None for a folder

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        del follow_symlinks
        return self.status is None

    def stat(self, *, follow_symlinks: bool) -> _Status:
        del follow_symlinks
        return _read_status(self.status or {})


class _Status(NamedTuple):
    """What is known of an object, as of a file."""

    st_size: int
    st_mtime_ns: int | str
    st_mode: int = stat.S_IFREG


Objects = Mapping[str, Mapping[str, _Object]]


def _read_status(status: dict[str, Any]) -> _Status:
    return _Status(int(status["size"]), read_version(status))


def _list_objects(root: Url) -> Objects:
    """Return the entries of each folder below a URL, by name; those of folders end with a slash."""
    system, key = root.open_file_system()
    with naming_requests(root):
        listed = system.find(key, detail=True)
    objects: dict[str, dict[str, _Object]] = defaultdict(dict)
    for path, status in listed.items():
        below = path.strip("/").removeprefix(key.strip("/") + "/")
        # Some programs create an object with an empty name to mark a folder.
        if below and not path.endswith("/") and status["type"] == "file":
            *folders, name = below.split("/")
            above = str(root)
            for folder in folders:
                objects[above][f"{folder}/"] = _Object(folder, None)
                above = f"{above}/{folder}"
            objects[above][name] = _Object(name, status)
    return objects


class _Entry(NamedTuple):
    """An entry of a folder."""

    path: str
    real: str
    match: str | None  # what the glob matched: it, or a folder above it


class _Walk:
    """A walk below one folder, which finds each file once, however many links lead to it.

    Links are followed after all real folders, so that a file is named by its real path if the walk
    finds it there. No folder is visited twice, so loops of links end.

    Args:
        pattern: of the paths below it; None: everything matches that is not hidden.
        objects: the entries of each folder, for a URL.
    """

    def __init__(
        self, search: _Search, pattern: _Pattern | None, objects: Objects | None = None
    ) -> None:
        self._search, self._pattern, self._objects = search, pattern, objects
        self._output = search.output
        self._found: dict[str, FoundFile] = {}
        self._visited: dict[str, set[int]] = {}  # up to which parts of the pattern folders matched
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
        real = path if self._objects is not None else os.path.realpath(path or os.curdir)
        if self._output is not None and _add_slash(real).startswith(_add_slash(self._output)):
            self._output = None  # the caller refuses the files found there
        self._root_length = len(_add_slash(path))
        is_match = self._pattern is None or self._pattern.takes_all
        self._take_folder(_Entry(path, real, "" if is_match else None))
        while self._folders or self._links:
            if self._folders:
                self._visit(self._folders.pop())
            else:
                self._follow(heapq.heappop(self._links)[1])
        return sorted(
            self._found.values(), key=lambda file: (os.fsencode(file.match), os.fsencode(file.path))
        )

    def _visit(self, folder: _Entry) -> None:
        try:
            if self._objects is None:
                with os.scandir(folder.path or os.curdir) as found:
                    entries: list[Any] = list(found)
            else:
                entries = list(self._objects.get(folder.path, {}).values())
        except FileNotFoundError:
            self._search.skipped.add(VANISHED, folder.path)
            return
        except OSError as error:  # skipping it would lose the files in it
            raise _read_error(folder.path, error) from error
        if any(each.name in RUN_NAMES for each in entries) and is_run_folder(
            parse_place(folder.path or os.curdir)
        ):
            self._search.skipped.add(SEQPACK_OUTPUT, folder.path or os.curdir)
            return
        prefix, real_prefix = _add_slash(folder.path), _add_slash(folder.real)
        for each in entries:
            path, match = prefix + each.name, folder.match
            if self._pattern and self._pattern.matches(path[self._root_length :]):
                match = path if match is None else match
            elif match is not None and each.name.startswith("."):
                continue
            entry = _Entry(path, real_prefix + each.name, match)
            try:
                if each.is_symlink():
                    if self._leads_on(entry):
                        heapq.heappush(self._links, (os.fsencode(path), entry))
                elif each.is_dir(follow_symlinks=False):
                    if self._leads_on(entry) and not self._skips(entry, is_folder=True):
                        self._take_folder(entry)
                elif self._is_file(entry) and not self._skips(entry, is_folder=False):
                    self._take_file(entry, each.stat(follow_symlinks=False))
            except FileNotFoundError:
                self._search.skipped.add(VANISHED, path)
            except OSError as error:
                raise _read_error(path, error) from error

    def _leads_on(self, entry: _Entry) -> bool:
        """Return whether anything in a folder may match."""
        if entry.match is not None or self._pattern is None:
            return True
        return bool(self._pattern.leads_to(entry.path[self._root_length :]))

    def _is_file(self, entry: _Entry) -> bool:
        """Return whether a file matches."""
        if entry.match is None or self._pattern is None:
            return entry.match is not None
        return entry.match != entry.path or not self._pattern.only_folders

    def _skips(self, entry: _Entry, *, is_folder: bool) -> bool:
        """Return whether --include and --exclude leave out a file, or all files of a folder."""
        reason = self._search.judge(entry.path[self._root_length :], is_folder=is_folder)
        if reason:
            self.has_match |= entry.match is not None
            self._search.skipped.add(reason, entry.path, entry.real)
            if reason == EXCLUDED:
                self._excluded.add(entry.real)
        return bool(reason)

    def _follow(self, link: _Entry) -> None:
        if self._search.judge(link.path[self._root_length :], is_folder=False) == EXCLUDED:
            self._skips(link, is_folder=False)
            return
        try:
            status = os.stat(link.path)  # noqa: PTH116
            link = link._replace(real=os.path.realpath(link.path))
        except OSError as error:
            if error.errno not in MISSING_ERRNOS:
                raise _read_error(link.path, error) from error
            self._search.skipped.add(DANGLING_LINK, link.path)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        is_wanted = self._leads_on(link) if is_folder else self._is_file(link)
        if not is_wanted or self._skips(link, is_folder=is_folder):
            return
        parents = (link.real.rsplit("/", number)[0] for number in range(link.real.count("/") + 1))
        if self._excluded and any(parent in self._excluded for parent in parents):
            self._search.skipped.add(EXCLUDED, link.path)
        elif not (self._take_folder(link) if is_folder else self._take_file(link, status)):
            self._search.skipped.add(REPEATED_LINK, link.path)

    def _take_folder(self, entry: _Entry) -> bool:
        """Add a folder to those to visit; return whether it is new."""
        if entry.real == self._output:
            self._search.skipped.add(SEQPACK_OUTPUT, entry.path)
            return True
        parts = {ALL}
        if entry.match is None and self._pattern is not None:
            parts = self._pattern.leads_to(entry.path[self._root_length :])
        visited = self._visited.setdefault(entry.real, set())
        if ALL in visited or (parts and parts <= visited):
            return False
        visited |= parts
        self._folders.append(entry)
        self.has_match |= entry.match is not None
        return True

    def _take_file(self, entry: _Entry, status: Any) -> bool:
        """Add a file if it is to be read; return whether it is new."""
        self.has_match = True
        below = entry.path[self._root_length :]
        is_named = self._pattern is not None and bool(self._pattern.matches(below))
        match = entry.match or ""
        file = self._search.make(entry.real, entry.path, status, is_named=is_named, match=match)
        if not stat.S_ISREG(status.st_mode):
            self._search.skipped.add(SPECIAL_FILE, entry.path)
        elif self._search.take(file, below):
            if entry.real in self._found:
                return False
            self._found[entry.real] = file
        return True


def _parse_choice(pattern: str) -> _Pattern:
    """Return a pattern of --include or --exclude: without a slash it matches at any depth."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if "/" not in pattern.rstrip("/"):
        parts.insert(0, DEEP)
    return _Pattern([*parts, ""] if pattern.endswith("/") else parts, hidden=True)


def _find_unnamed(kind: FileFormat) -> str:
    """Return why a file is skipped unless it is named, "" if it is not.

    Below folders most .json files are not records: tokenizer.json, config.json.
    """
    if kind.format is None:
        return UNKNOWN_SUFFIX
    return UNNAMED_JSON if kind.format == "json" else ""


def _list_statuses(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the statuses of URLs by listing their folders, where that takes fewer requests.

    A listing has 1,000 objects in a request, which takes as long as the status of a few objects.
    """
    urls = set(filter(is_url, names))
    statuses: dict[str, dict[str, Any]] = {}
    for folder, count in Counter(url.rpartition("/")[0] for url in urls).items():
        if count >= LIMITS.objects_listed and split_url(folder)[0] in PACKAGES:
            check_address(folder)
            listed = {f"{folder}/{name}": each for name, each in Url(folder).list_files().items()}
            statuses |= {url: each for url, each in listed.items() if url in urls}
    return statuses


def _read_json(path: str) -> Any:
    """Return what a file holds, None if it is missing or is not JSON."""
    with contextlib.suppress(OSError, FolderError, ValueError, RecursionError):
        data = Input(path).read()
        return None if data is None else json.loads(data)
    return None


def _missing_pair_error(missing: str, path: str) -> OptionError:
    what = f"{missing}: no such file, expected beside {path}"
    return OptionError(what, "copy both files of the pair to one folder")


def _read_error(path: str, error: OSError) -> MachineError:
    return MachineError(f"{path}: {error.strerror or error}")


def _add_slash(folder: str) -> str:
    return os.path.join(folder, "") if folder else ""  # noqa: PTH118


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
