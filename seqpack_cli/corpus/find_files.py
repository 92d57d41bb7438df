"""Find the source files of the inputs and their formats, in one fixed order.

An input is a file, a folder (every file below it with a known suffix, sorted by the bytes of the
paths), a glob, a URL of any of these, or `-`, whose bytes were copied to a file. One walk goes
through folders on this machine and through the listing of a URL; a folder is a glob that matches
everything in it. No file is opened: 100,000 take about a second.
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
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from seqpack_cli.corpus.options import (
    BINARY_FORMATS,
    COMPRESSION_OF_SUFFIX,
    TEXT_FORMATS,
    FileOptions,
    Formats,
    find_file_format,
)
from seqpack_cli.corpus.sources import STANDARD_INPUT, Source, iter_standard_input
from seqpack_cli.errors import (
    FolderError,
    MachineError,
    OptionError,
    SeqpackError,
    join_items,
    quote,
)
from seqpack_cli.files.inputs import Input, ListedName, spell_inputs
from seqpack_cli.files.manifest import RUN_NAMES, is_run_folder
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
MAX_SHOWN_CHARACTERS = 200  # of a line that is not a path: LIST may be any file
GLOB_HINT = "pass a file, a folder, or a glob in quotes: 'corpus/**/*.jsonl'"
LIST_HINT = "list URLs, absolute paths, or paths relative to the current folder"
PARTNERS = {".bin": ".idx", ".idx": ".bin"}  # of an indexed dataset
DEEP = "**"
Scan = Callable[[str], Iterable[Any]]  # from a folder to entries like os.DirEntry
# What `save_to_disk` of Hugging Face's datasets writes.
STATE_NAME, INFO_NAME, SPLITS_NAME = "state.json", "dataset_info.json", "dataset_dict.json"
CACHE = re.compile(r"cache-[0-9a-f]{16}\w*\.arrow")


class Reason(Enum):
    """Why an entry was skipped: the noun of one, and of many."""

    UNKNOWN_SUFFIX = "file with an unknown suffix", "files with unknown suffixes"
    UNNAMED_JSON = "JSON file that is not named", "JSON files that are not named"
    UNLISTED_ARROW = (
        "Arrow file that is not data of a saved dataset",
        "Arrow files that are not data of a saved dataset",
    )
    DANGLING_LINK = "dangling link", "dangling links"
    REPEATED_LINK = "link to something already read", "links to something already read"
    SPECIAL_FILE = "pipe, socket or device", "pipes, sockets or devices"
    SEQPACK_OUTPUT = "folder written by seqpack", "folders written by seqpack"
    VANISHED = "entry that disappeared", "entries that disappeared"
    EXCLUDED = "file or folder that matches --exclude", "files or folders that match --exclude"
    NOT_INCLUDED = (
        "file or folder that does not match --include",
        "files or folders that do not match --include",
    )
    UNMATCHED = (
        "pattern that matches nothing outside skipped folders",
        "patterns that match nothing outside skipped folders",
    )


class Skipped(dict[str, tuple[Reason, str]]):
    """The entries below the inputs that were skipped, for one note and `run.json`.

    By path: the reason, and the real path of a file that another input may name, or "".
    """

    def count(self) -> dict[str, int]:
        """Return the number of entries by reason, without reasons that did not occur."""
        return Counter(reason.name.lower() for reason, _ in self.values())

    def __str__(self) -> str:
        """List the entries on one line.

        >>> str(Skipped({"data/latest.txt": (Reason.DANGLING_LINK, "")}))
        'skipped 1 dangling link: data/latest.txt'
        """
        found = []
        for reason in Reason:
            paths = sorted((path for path, why in self.items() if reason in why), key=os.fsencode)
            if paths:
                noun = reason.value[len(paths) > 1]
                found.append(f"{len(paths):,} {noun}: {join_items(paths)}")
        return f"skipped {'; '.join(found)}"


class FoundFile(NamedTuple):
    """A file that an input names."""

    source: Source
    real: str  # its path with all links resolved: identifies the file
    is_named: bool  # by the user or matched by a glob, not only found below a folder
    match: str  # the input, or what a glob matched: the file or a folder above it


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
        return b"".join(iter_standard_input())
    source = Input(str(parse_place(path)))
    try:
        with source.open(source.find_version()[0]) as file:
            return file.read()
    except IsADirectoryError as error:
        raise OptionError(
            f"--files-from {path}: a folder, expected a file with one path per line",
            hint=f"pass {shlex.quote(path)} as INPUT",
        ) from error
    except (FileNotFoundError, NotADirectoryError, FolderError) as error:
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
        output: the folder that the run writes, which must not contain an input.
        formats: those that the command reads, or the one that all files have.

    Returns:
        The sources, each once however it is spelled or linked, and what was skipped.

    Raises:
        OptionError: an input does not exist, a suffix is refused, a pattern matches nothing, or a
            file of a pair is missing.
        FolderError: the output contains an input.
        MachineError: something cannot be read.
    """
    search = _Search(inputs, document, patterns or FileOptions(), formats)
    inside = None if output is None else _add_slash(find_real_name(output))

    def find(name: str) -> list[FoundFile]:
        try:
            return search.find_input(name, spool)
        except SeqpackError as error:
            if not isinstance(name, ListedName):
                raise
            raise type(error)(f"{name.place}: {error.message}", error.hint) from error

    sources: dict[str, Source] = {}  # by their real paths
    for found in map_ahead(find, inputs, num_threads=_count_threads(inputs)):
        for source, real, *_ in found:
            if inside is not None and real.startswith(inside):
                raise FolderError(
                    f"{output}: contains the input {source.path}", "choose another -o"
                )
            earlier = sources.setdefault(real, source)
            renamed = earlier._replace(path=source.path, index_file=source.index_file)
            # Of two spellings of a file the one without links names it.
            abspath = os.path.abspath
            if renamed == source and abspath(earlier.path) != real == abspath(source.path):
                sources[real] = source
    search.check_used()
    left = {path: why for path, why in search.skipped.items() if why[1] not in sources}
    skipped = Skipped(left)
    if not sources:
        raise _describe_nothing(inputs, skipped, formats)
    return list(sources.values()), skipped


def _describe_nothing(inputs: Sequence[str], skipped: Skipped, formats: Formats) -> OptionError:
    """Return the error about inputs without a file to read."""
    reasons = {reason for reason, _ in skipped.values()}
    known = " ".join([*formats.of_suffix, *COMPRESSION_OF_SUFFIX])
    what, hint = "no file with a known suffix", f"known suffixes: {known}; or {formats.hint}"
    if reasons & {Reason.EXCLUDED, Reason.NOT_INCLUDED}:
        what, hint = "no file left to read", "change --include or --exclude"
    elif Reason.UNNAMED_JSON in reasons:
        hint = "pass --include '*.json' if these files are arrays of objects"
    elif Reason.SEQPACK_OUTPUT in reasons:
        hint = "run seqpack pack to read a token store"
    seen = f" ({skipped})" if skipped else ""
    return OptionError(f"{join_items(inputs)}: {what}{seen}", hint)


class _Pattern:
    """A glob of paths below a folder: `*` stays within a name, `**` matches any number of folders.

    Args:
        parts: the glob, split at slashes, the last one empty if only folders shall match.
        hidden: whether wildcards match names that begin with a dot.
        option: with which it was given, and how it was spelled there.
    """

    def __init__(
        self, parts: Sequence[str], *, hidden: bool = False, option: str = "", spelled: str = ""
    ) -> None:
        self.option, self.spelled = option, spelled
        names = [part for part in parts if part]
        self._only_folders = parts[-1:] == [""]
        dot = "" if hidden else r"(?!\.)"
        steps = [f"(?:{dot}[^/]+/)*" if part == DEEP else _translate(part, dot) for part in names]
        if names[-1:] == [DEEP] and not self._only_folders:
            steps[-1] = f"(?:{dot}[^/]+/)+"  # matches what is in the folder, not the folder
        prefixes = list(accumulate(steps, initial=""))
        self._prefixes = [re.compile(each, re.DOTALL).fullmatch for each in prefixes]
        self._covers = re.compile(f"{prefixes[-1]}.*", re.DOTALL).fullmatch
        self.parts = set(range(len(prefixes)))  # of a folder in which everything matches

    def matches(self, path: str) -> bool:
        """Return whether a file matches, or a folder, whose path ends with a slash."""
        return self._prefixes[-1](self._spell(path)) is not None

    def covers(self, path: str) -> bool:
        """Return whether a file or folder matches, or a folder above it."""
        return self._covers(self._spell(path)) is not None

    def leads_to(self, folder: str) -> set[int]:
        """Return the parts up to which a folder matches; without any nothing in it can match."""
        return {part for part, matches in enumerate(self._prefixes) if matches(folder)}

    def _spell(self, path: str) -> str:
        is_whole = self._only_folders or not path or path.endswith("/")
        return path if is_whole else f"{path}/"


def _translate(part: str, dot: str) -> str:
    """Return the regular expression of one part of a glob, with the slash behind it."""
    simple = {"*": "[^/]*", "?": "[^/]"}
    pieces = re.findall(r"\*+|\[!?\]?[^\]]*\]|.", part, re.DOTALL)
    found = (
        simple.get(piece[0])
        or (f"(?!/){fnmatch.translate(piece)[4:-3]}" if len(piece) > 1 else re.escape(piece))
        for piece in pieces
    )
    return f"{'' if part.startswith('.') else dot}{''.join(found)}/"


class _Search:
    """Finds the files of inputs, and notes which are skipped and which patterns were used."""

    def __init__(
        self, inputs: Sequence[str], document: str, options: FileOptions, formats: Formats
    ) -> None:
        self.skipped = Skipped()
        self._document, self._formats = document, formats
        self._include = [_parse_choice("--include", each) for each in options.include]
        self._exclude = [_parse_choice("--exclude", each) for each in options.exclude]
        self._unused = dict.fromkeys([*self._include, *self._exclude])
        self._unseen = set[_Pattern]()  # which may match below a folder that is skipped
        self._roots: list[str] = []  # inputs whose files are chosen
        self._statuses = _list_statuses(inputs)

    def find_input(self, name: str, spool: str | None) -> list[FoundFile]:
        """Find the files of a path, a URL or a glob; a pair is one file, its .bin.

        Raises:
            OptionError: nothing has that name, its suffix is refused, or a file of a pair or of a
                saved dataset is missing.
            MachineError: something cannot be read.
        """
        if name == STANDARD_INPUT and spool is not None:
            (file,) = self.take(name, name, os.stat(spool))  # noqa: PTH116
            return [file._replace(source=file.source._replace(spool=spool))]
        local, is_pair = find_local_name(name), False
        try:
            files = self._find(local, is_listed=isinstance(name, ListedName))
        except OptionError:
            beside = [f"{local}{suffix}" for suffix in PARTNERS if self._formats.has_pairs]
            files, is_pair = self._find_each(beside), True
            if not files:
                raise
        files = self._choose_saved(files)
        return self._join_pairs(files, is_pair=is_pair) if self._formats.has_pairs else files

    def check_used(self) -> None:
        """Raise OptionError if a pattern of --include or --exclude has matched nothing.

        Note one that may match something below a folder that is skipped.
        """
        for pattern in self._unused:
            if pattern in self._unseen:
                self.skipped[pattern.spelled] = Reason.UNMATCHED, ""
                continue
            shown = f"{pattern.option} {quote(pattern.spelled)}"
            if not self._roots:
                raise OptionError(
                    f"{shown}: no input is a folder or a glob, and a file that is named is always "
                    "read",
                    hint="pass the folder of the files",
                )
            hint = "write a file name, such as '*.csv', or a path below the folder, such as "
            hint += "'drafts/**'"
            if any(each.startswith(".") and each.strip(".") for each in pattern.spelled.split("/")):
                hint = f"leave out {pattern.option}: hidden files are skipped anyway"
            raise OptionError(f"{shown}: matches no file of {join_items(self._roots)}", hint)

    def judge(self, path: str) -> Reason | None:
        """Return why a file below an input, or all of a folder, is not read, None if it is."""
        if not self._include and not self._exclude:
            return None
        patterns, is_folder = [*self._include, *self._exclude], path[-1:] in ("", "/")
        used = {each for each in patterns if each.covers(path)}
        reason = None if used.isdisjoint(self._exclude) else Reason.EXCLUDED
        inside = {each for each in patterns if is_folder and each.leads_to(path)}
        if self._include and reason is None and (used | inside).isdisjoint(self._include):
            reason = Reason.NOT_INCLUDED
        if reason is not None or not is_folder:
            self._unseen |= inside
            for each in used:
                self._unused.pop(each, None)
        return reason

    def take(
        self,
        path: str,
        real: str,
        status: Any,
        match: str = "",
        below: str = "",
        *,
        is_named: bool = True,
    ) -> list[FoundFile]:
        """Return what is known of a file, nothing of one that is read only if it is named.

        Below folders most .json files are not records: tokenizer.json, config.json.

        Args:
            below: its path below the input.
        """
        formats = self._formats
        kind = find_file_format(path, formats)
        found = formats.chosen or kind.format
        is_unnamed = not is_named and found in (None, "json") and formats.chosen is None
        if is_unnamed and not any(each.matches(below) for each in self._include):
            reason = Reason.UNKNOWN_SUFFIX if found is None else Reason.UNNAMED_JSON
            self.skipped[path] = reason, real
            return []
        if found is None and kind.suffix in formats.refused:
            what = f"{path}: {kind.suffix} files are not supported"
            raise OptionError(what, hint=formats.refused[kind.suffix])
        found = found or formats.fallback
        if found is None:
            known = " ".join(formats.of_suffix)
            raise OptionError(f"{path}: expected one of the suffixes {known}", hint=formats.hint)
        if kind.compression and found in BINARY_FORMATS:
            raise OptionError(f"{path}: a compressed {found} file", hint="decompress it")
        source = Source(
            path,
            found,
            self._document if found == "text" else "line" if found == "jsonl" else "row",
            status.st_size,
            # Parquet is compressed inside, whatever suffix follows in its name.
            "" if found == "parquet" else kind.compression,
            "\t" if kind.suffix == ".tsv" else ",",
            modified=status.st_mtime_ns,
        )
        return [FoundFile(source, real, is_named, match)]

    def _find(self, name: str, *, is_listed: bool) -> list[FoundFile]:
        """Find the files of a path, a URL or a glob; what exists is never a glob.

        A part with brackets that exists under this very name, such as v[1], is a name, too.
        """
        is_remote = is_url(name)
        spelled, status = self._look(name)
        if status is not None and stat.S_ISREG(status.st_mode) and not name.endswith("/"):
            real = spelled if is_remote else os.path.realpath(name)
            return self.take(spelled, real, status)
        root, parts = spelled, [""]
        if status is None:
            parts = spelled.split("/")
            wild = (
                number
                for number, part in enumerate(parts)
                if glob.has_magic(part)
                and not ("[" in part and os.path.exists("/".join(parts[: number + 1])))  # noqa: PTH110
            )
            first = next(wild, None)
            if is_listed or first is None:
                raise _missing_error(spelled, LIST_HINT if is_listed else GLOB_HINT)
            root, parts = "/".join(parts[:first]) or "/" * (first > 0), parts[first:]
        elif not is_remote:
            if not stat.S_ISDIR(status.st_mode):
                what = f"{name}: not a regular file, expected a file, a folder or a glob"
                raise OptionError(what)
            root = "" if Path(name) == Path() else str(Path(name))
        self._roots.append(name)
        scan = _list_objects(Url(root)) if is_remote else os.scandir
        walk = _Walk(self, root, _Pattern(parts), scan)
        if not walk.has_match:
            raise _missing_error(spelled, GLOB_HINT)
        return sorted(
            walk.found.values(),
            key=lambda file: (os.fsencode(file.match), os.fsencode(file.source.path)),
        )

    def _look(self, name: str) -> tuple[str, Any]:
        """Return a path or URL as sources spell it, and its status, None if nothing is there."""
        if is_url(name):
            check_address(name)
            protocol, key = split_url(name)
            url = Url(f"{protocol}://{key.strip('/')}")
            if url.key.partition("/")[2].startswith("/"):  # s3fs would list the objects without it
                raise OptionError(f"{url}: two slashes after the bucket, expected one")
            found = self._statuses.get(str(url)) or url.find_status()
            return str(url), None if found is None else _describe_object("", found)
        try:
            return name, os.stat(name)  # noqa: PTH116
        except OSError as error:
            if error.errno not in MISSING_ERRNOS:
                raise _read_error(name, error) from error
            if os.path.islink(name):  # noqa: PTH114
                raise OptionError(f"{name}: dangling link, expected a file") from error
        return name, None

    def _find_each(self, names: Sequence[str]) -> list[FoundFile]:
        """Find those of some files that exist, by their very names."""

        def find(name: str) -> list[FoundFile]:
            with contextlib.suppress(OptionError):
                return [file for file in self._find(name, is_listed=True) if file.is_named]
            return []

        return [
            file
            for found in map_ahead(find, names, num_threads=_count_threads(names))
            for file in found
        ]

    def _join_pairs(self, files: list[FoundFile], *, is_pair: bool) -> list[FoundFile]:
        """Join each .bin with the .idx beside it; a pair is excluded if one of its files is.

        Args:
            is_pair: the input names both files, without a suffix.
        """
        found = {file.source.path: file for file in files}
        # Any other file is its own partner.
        partners = {path: path[:-4] + PARTNERS.get(path[-4:].lower(), path[-4:]) for path in found}
        excluded = {
            path for path in partners.values() if Reason.EXCLUDED in self.skipped.get(path, ())
        }
        unknown = set(partners.values()) - found.keys() - excluded
        found |= {file.source.path: file for file in self._find_each(sorted(unknown))}
        pairs: dict[str, FoundFile] = {}  # by the path of the .bin
        for path, partner in partners.items():
            file, other = found[path], found.get(partner)
            if other is None and partner in excluded:
                self.skipped[path] = Reason.EXCLUDED, file.real
                continue
            if other is None and (is_pair or file.source.format == "megatron"):
                what = f"{partner}: no such file, expected beside {path}"
                raise OptionError(what, "copy both files of the pair to one folder")
            if other is not None and other is not file:
                data, index = (other, file) if partner.endswith(".bin") else (file, other)
                source = data.source._replace(format="megatron", index_file=index.source)
                file = data._replace(source=source)
                self.skipped.pop(index.source.path, None)
            pairs.setdefault(file.source.path, file)
        return list(pairs.values())

    def _choose_saved(self, files: list[FoundFile]) -> list[FoundFile]:
        """Choose the Arrow files below an input that a saved dataset lists, in its order.

        Raises:
            OptionError: a folder has several splits, or lacks a file that state.json lists.
        """
        # By folder and name; Arrow files of a folder are one group without a name.
        groups: dict[tuple[str, str], list[FoundFile]] = defaultdict(list)
        for file in files:
            folder, _, name = file.source.path.rpartition("/")
            is_data = file.source.format == "arrow" and not file.is_named
            groups[folder, "" if is_data else name].append(file)
        splits: dict[str, list[str]] = defaultdict(list)
        for (folder, name), (file, *_) in groups.items():
            above, _, split = folder.rpartition("/")
            if not name and _add_slash(above).startswith(_add_slash(file.match)):
                splits[above].append(split)
        for above, names in splits.items():  # reading all would mix train and test
            if _read_json(f"{_add_slash(above)}{SPLITS_NAME}") is not None:
                what = f"{above or '.'}: holds the splits {join_items(names)} of a dataset"
                best = "train" if "train" in names else names[0]
                hint = f"pass {shlex.quote(_add_slash(above) + best)}"
                raise OptionError(f"{what}, expected one", hint)
        return [
            file
            for (folder, name), group in groups.items()
            for file in (group if name else self._choose_data(_add_slash(folder), group))
        ]

    def _choose_data(self, folder: str, files: list[FoundFile]) -> list[FoundFile]:
        """Choose the files that a state.json lists, or all but caches if there is none."""
        found = {file.source.path.removeprefix(folder): file for file in files}
        listed = [name for name in found if not CACHE.fullmatch(name)]
        state = _read_json(f"{folder}{STATE_NAME}")
        with contextlib.suppress(TypeError, KeyError, AttributeError):  # of another program
            listed = [str(file["filename"]) for file in state["_data_files"]]
            if state.get("_indices_data_files") or state.get("_indices_files"):
                raise OptionError(
                    f"{folder}{STATE_NAME}: the rows are chosen by another file",
                    hint="save the dataset again, after dataset.flatten_indices()",
                )
            for name in (STATE_NAME, INFO_NAME):
                if Reason.UNNAMED_JSON in self.skipped.get(f"{folder}{name}", ()):
                    del self.skipped[f"{folder}{name}"]
        for name in found.keys() - set(listed):
            file = found[name]
            self.skipped[file.source.path] = Reason.UNLISTED_ARROW, file.real
        for name in listed:  # one that --exclude leaves out exists
            path = f"{folder}{name}"
            if name not in found and not self._find_each([path]):
                what = f"{path}: no such file, expected as in {STATE_NAME}"
                raise OptionError(what, hint="copy the whole folder again")
        return [found[name] for name in listed if name in found]


class _Object(NamedTuple):
    """An object or a folder of objects, with what is used of an os.DirEntry and its status."""

    name: str
    st_mode: int
    st_size: int = 0
    st_mtime_ns: int | str = ""

    def is_symlink(self) -> bool:
        return False

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.st_mode)

    def stat(self) -> _Object:
        return self


def _list_objects(root: Url) -> Scan:
    """List what is below a URL, and return a function from a folder to its entries."""
    system, key = root.open_file_system()
    with naming_requests(root):
        listed = system.find(key, detail=True)
    # By folder and name; the names of folders end with a slash.
    objects: dict[str, dict[str, _Object]] = defaultdict(dict)
    for path, status in listed.items():
        below = path.strip("/").removeprefix(key.strip("/") + "/")
        # Some programs create an object with an empty name to mark a folder.
        if below and not path.endswith("/") and status["type"] == "file":
            *folders, name = below.split("/")
            above = str(root)
            for folder in folders:
                objects[above][f"{folder}/"] = _Object(folder, stat.S_IFDIR)
                above = f"{above}/{folder}"
            objects[above][name] = _describe_object(name, status)
    return lambda folder: objects[folder].values()


def _describe_object(name: str, status: dict[str, Any]) -> _Object:
    mode = stat.S_IFREG if status["type"] == "file" else stat.S_IFDIR
    return _Object(name, mode, int(status.get("size") or 0), read_version(status))


class _Entry(NamedTuple):
    """An entry of a folder."""

    path: str
    real: str
    match: str | None  # what the glob matched: a folder above it
    item: Any  # an os.DirEntry or an _Object


class _Walk:
    """A walk below one folder, which finds each file once, however many links lead to it.

    Links are followed after all real folders, so that a file is named by its real path if the walk
    finds it there. No folder is visited twice, so loops of links end.

    Args:
        root: the folder, spelled as the paths of the files shall begin; "" for the current one.
        pattern: of the paths below it.
        scan: returns the entries of a folder.
    """

    def __init__(self, search: _Search, root: str, pattern: _Pattern, scan: Scan) -> None:
        self._search, self._pattern, self._scan = search, pattern, scan
        self.found: dict[str, FoundFile] = {}  # by their real paths
        self.has_match = False
        self._visited: dict[str, set[int]] = {}  # up to which parts of the pattern folders matched
        self._folders: list[_Entry] = []
        self._links: list[tuple[bytes, _Entry]] = []  # by the bytes of their paths
        self._excluded: set[str] = set()  # real paths: no link leads back to them
        self._start = len(_add_slash(root))
        real = root if is_url(root) else os.path.realpath(root or os.curdir)
        self._take(_Entry(root, real, None, _Object(root, stat.S_IFDIR)))
        while self._folders or self._links:
            if self._folders:
                self._try(self._visit, self._folders.pop())
            else:
                _, link = heapq.heappop(self._links)
                self._try(self._take, link._replace(real=os.path.realpath(link.path)))

    def _try(self, do: Callable[[_Entry], None], entry: _Entry) -> None:
        """Note an entry that is not there; skipping one that cannot be read would lose files."""
        try:
            do(entry)
        except OSError as error:
            if error.errno not in MISSING_ERRNOS:
                raise _read_error(entry.path or os.curdir, error) from error
            reason = Reason.DANGLING_LINK if entry.item.is_symlink() else Reason.VANISHED
            self._search.skipped[entry.path] = reason, ""

    def _visit(self, folder: _Entry) -> None:
        place = folder.path or os.curdir
        items = list(self._scan(place))
        if any(item.name in RUN_NAMES for item in items) and is_run_folder(parse_place(place)):
            self._search.skipped[place] = Reason.SEQPACK_OUTPUT, ""
            return
        prefix, real_prefix = _add_slash(folder.path), _add_slash(folder.real)
        for item in items:
            if folder.match is not None and item.name.startswith("."):
                continue
            path = prefix + item.name
            entry = _Entry(path, real_prefix + item.name, folder.match, item)
            if not item.is_symlink():
                self._try(self._take, entry)
            elif folder.match is not None or self._pattern.leads_to(f"{path[self._start :]}/"):
                heapq.heappush(self._links, (os.fsencode(path), entry))

    def _take(self, entry: _Entry) -> None:
        """Take a file, or a folder to visit, unless something says to skip it."""
        path, real, match, item = entry
        is_link, pattern = item.is_symlink(), self._pattern
        try:
            is_folder = not item.is_file() if is_link else item.is_dir()
        except OSError:
            is_folder = True  # a link that leads nowhere may have led to a folder
        below = path[self._start :]
        below += "/" if is_folder and below else ""
        if match is None and pattern.matches(below):
            match = path
        parts = pattern.parts
        if match is None:
            parts = pattern.leads_to(below) if is_folder else set()
        if not parts:
            return
        reason = self._search.judge(below)
        excluded = self._excluded if is_link else None
        if excluded and excluded & {real, *map(str, PurePath(real).parents)}:
            reason = Reason.EXCLUDED
        status: Any = None if reason else item.stat()
        self.has_match |= match is not None
        if reason is not None:
            self._search.skipped[path] = reason, "" if is_link else real
            if reason is Reason.EXCLUDED and not is_link:
                self._excluded.add(real)
            return
        is_new = True
        if stat.S_ISDIR(status.st_mode):
            visited = self._visited.setdefault(real, set())
            is_new = not parts <= visited
            if is_new:
                visited |= parts
                self._folders.append(entry._replace(match=match))
        elif not stat.S_ISREG(status.st_mode):
            self._search.skipped[path] = Reason.SPECIAL_FILE, ""
        else:
            named = pattern.matches(below)
            for file in self._search.take(path, real, status, match or "", below, is_named=named):
                is_new = self.found.setdefault(real, file) is file
        if is_link and not is_new:
            self._search.skipped[path] = Reason.REPEATED_LINK, ""


def _parse_choice(option: str, spelled: str) -> _Pattern:
    """Return a pattern of --include or --exclude: without a slash it matches at any depth."""
    parts = [part for part in spelled.split("/") if part not in ("", ".")]
    if "/" not in spelled.rstrip("/"):
        parts.insert(0, DEEP)
    parts += [""] * spelled.endswith("/")
    return _Pattern(parts, hidden=True, option=option, spelled=spelled)


def _list_statuses(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the statuses of URLs by listing their folders, where that takes fewer requests.

    A listing has 1,000 objects in a request, which takes as long as the status of a few objects.
    """
    found: dict[str, dict[str, Any]] = {}
    folders = Counter(name.rpartition("/")[0] for name in names if is_url(name))
    for folder, count in folders.items():
        if count >= LIMITS.objects_listed and split_url(folder)[0] in PACKAGES:
            check_address(folder)
            listed = Url(folder).list_files().items()
            found |= {f"{folder}/{name}": status for name, status in listed}
    return found


def _read_json(path: str) -> Any:
    """Return what a file holds, None if it is missing or is not JSON."""
    with contextlib.suppress(OSError, FolderError, ValueError, RecursionError):
        return json.loads(Input(path).read() or b"null")
    return None


def _missing_error(name: str, hint: str) -> OptionError:
    shown = name if len(name) <= MAX_SHOWN_CHARACTERS else f"{name[:MAX_SHOWN_CHARACTERS]}…"
    noun = "object" if is_url(name) else "file"
    return OptionError(f"{shown}: no such {noun} or folder{suggest_name(name)}", hint)


def _read_error(path: str, error: OSError) -> MachineError:
    return MachineError(f"{path}: {error.strerror or error}")


def _count_threads(names: Sequence[str]) -> int:
    return min(NUM_THREADS, len(names)) if any(map(is_url, names)) else 1


def _add_slash(folder: str) -> str:
    return folder and os.path.join(folder, "")  # noqa: PTH118
