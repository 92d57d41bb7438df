"""The options that say which files are read, in which formats, and how records become texts.

`corpus.jsonl.zst` is JSON lines in zstd. Each command has a table of the formats that it reads:
`tokenize` reads texts, `import` ids. Suffixes such as .zip are refused: reading these files as text
would tokenize binary data.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from seqpack_cli.errors import OptionError, quote
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.runs.options import check_options, option

INPUT, DOCUMENTS = "Which files", "Documents"
COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
UNPACK = "unpack it into a folder and pass the folder"
ARCHIVES = {".tar": UNPACK, ".tgz": UNPACK, ".zip": UNPACK}
TOKENIZE = "run seqpack tokenize to read text"
IMPORT = "run seqpack import to read ids"
SAVE_IDS = "save the ids as one array with numpy.save, and import that .npy file"
NOT_IDS = "write ids as JSON lines with a field input_ids, or run seqpack tokenize to read text"
BINARY_FORMATS = ("megatron", "flat", "arrow")  # which are read from where they lie


@dataclass(frozen=True, eq=False)  # hashed by its identity
class Formats:
    """The formats that a command reads.

    Args:
        of_suffix: the format of each suffix.
        refused: a hint for each suffix that is refused.
        fallback: the format of a named file with another suffix; None: that is an error.
        hint: what to do about other suffixes.
        chosen: the format of all files, whatever their suffixes are.
    """

    of_suffix: Mapping[str, str]
    refused: Mapping[str, str]
    fallback: str | None
    hint: str
    chosen: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the formats that --format may name."""
        return tuple(dict.fromkeys(self.of_suffix.values()))

    @property
    def has_pairs(self) -> bool:
        """Return whether a .bin and an .idx beside it are one source."""
        return ".idx" in self.of_suffix and self.chosen is None

    def choose(self, name: str) -> Formats:
        """Return the formats that hold for --format NAME."""
        if name == "auto":
            return self
        if name not in BINARY_FORMATS:
            return replace(self, chosen=name)
        # Files of a format that cannot be anything else are still recognized by their suffixes.
        of_suffix = {suffix: name for suffix, found in self.of_suffix.items() if found == name}
        fallback: str | None = name
        if name == "megatron":
            of_suffix[".bin"], fallback = name, None
        return Formats(of_suffix, {}, fallback, hint="name the files, or pass a glob")


class FileFormat(NamedTuple):
    """What the name of a file says about its content."""

    format: str | None  # None: unknown suffix
    compression: str  # or ""
    suffix: str  # in lower case, without that of the compression; or ""


ARROW = dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow")
TEXT_FORMATS = Formats(
    {
        ".txt": "text",
        ".text": "text",
        ".md": "text",
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".json": "json",
        ".parquet": "parquet",
        **ARROW,
        ".csv": "csv",
        ".tsv": "csv",
    },
    {**ARCHIVES, ".bin": f"{IMPORT}, or pass --format text if it is text"},
    fallback="text",
    hint="pass --format text to read every file",
)
IDS_FORMATS = Formats(
    {
        ".idx": "megatron",
        ".bin": "flat",  # megatron, if there is an .idx beside it
        ".npy": "flat",
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".json": "json",
        ".parquet": "parquet",
        **ARROW,
    },
    {
        **dict.fromkeys((".txt", ".text", ".md", ".csv", ".tsv"), NOT_IDS),
        **dict.fromkeys((".npz", ".pkl", ".pickle", ".pt"), SAVE_IDS),
        **ARCHIVES,
    },
    fallback=None,
    hint="pass --format flat if the file holds ids alone, or --format jsonl",
)
FORMATS = TEXT_FORMATS.names


def find_file_format(path: str, formats: Formats = TEXT_FORMATS) -> FileFormat:
    """Find the format of a file from its name, upper or lower case.

    >>> find_file_format("a/b.TSV.gz")
    FileFormat(format='csv', compression='gzip', suffix='.tsv')
    """
    name = path.rpartition(os.sep)[2].lstrip(".").lower()  # fast: there may be 100,000 files
    return _find_file_format(formats, *name.rsplit(".", 2)[1:])


@functools.lru_cache(maxsize=1024)
def _find_file_format(formats: Formats, *names: str) -> FileFormat:
    suffixes = [f".{name}" for name in names]
    compression = COMPRESSION_OF_SUFFIX.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return FileFormat(formats.of_suffix.get(suffix), compression, suffix)


@dataclass(frozen=True)
class FileOptions:
    """Which files are read. Patterns choose below folders and among the matches of a glob.

    A pattern is matched against the path below the folder; without a slash, against names at any
    depth. `*` does not match a slash, `**` does. What a folder's own path matches goes for all
    files below it.

    Raises:
        OptionError: a pattern has no name to match, or the path of the list is empty.
    """

    include: Sequence[str] = option(
        (),
        "Read only files below folders that match GLOB: 'en/**' for paths, '*.txt' for names. May "
        "be repeated.",
        INPUT,
        metavar="GLOB",
    )
    exclude: Sequence[str] = option(
        (),
        "Skip files and folders that match GLOB, even if they match --include. May be repeated.",
        INPUT,
        metavar="GLOB",
    )
    files_from: AnyPath | None = option(
        None,
        "Read the files that LIST names, one path or URL per line; - is standard input.",
        INPUT,
        metavar="LIST",
    )

    def __post_init__(self) -> None:
        from seqpack_cli.files.inputs import spell_input

        check_options(self)
        if self.files_from == "":
            raise OptionError("--files-from '': expected the path of a file", "leave it out")
        if self.files_from is not None:
            object.__setattr__(self, "files_from", spell_input(self.files_from))
        for flag, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            for pattern in patterns:
                if not pattern.strip("./"):
                    raise OptionError(f"{flag} {quote(pattern)}: expected a pattern like '*.txt'")


@dataclass(frozen=True)
class DocumentOptions:
    """How records become texts."""

    text_field: str = option(
        "text", "Field or column that holds the text; a.b is field b inside a.", DOCUMENTS
    )
    encoding_errors: str = option(
        "error",
        "A record that is not valid UTF-8: stop, put U+FFFD for invalid bytes, or skip it.",
        DOCUMENTS,
        choices=("error", "replace", "skip"),
    )
    on_bad_record: str = option(
        "error",
        "A record that cannot be read or lacks a field: stop, or skip it (listed in "
        "rejects.jsonl).",
        DOCUMENTS,
        choices=("error", "skip"),
    )
    max_document_bytes: int = option(
        64 << 20, "Largest document; a larger one is an error.", DOCUMENTS, kind="size"
    )

    def __post_init__(self) -> None:
        check_options(self)
