"""Find the format and compression of a file from its suffixes.

`corpus.jsonl.zst` is JSON lines in zstd. Each command has a table of the formats that it reads:
`tokenize` reads texts, `import` ids. Suffixes such as .zip are refused: reading these files as text
would tokenize binary data.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from seqpack_cli.corpus.skipped import UNKNOWN_SUFFIX, UNNAMED_JSON

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
        by_suffix: formats that are recognized by their suffixes below folders even if --format
            names them, with the table that then holds.
        reads_ids: whether the files hold ids, so that a folder written by seqpack is refused.
        chosen: the format of all files, whatever their suffixes are.
    """

    of_suffix: Mapping[str, str]
    refused: Mapping[str, str]
    fallback: str | None
    hint: str
    by_suffix: Mapping[str, Formats] = field(default_factory=dict)
    reads_ids: bool = False
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
        return self.by_suffix.get(name) or replace(self, chosen=name)


class FileFormat(NamedTuple):
    """What the name of a file says about its content."""

    format: str | None  # None: unknown suffix
    compression: str  # or ""
    delimiter: str  # of a csv file's fields
    refused: str | None  # the suffix, if such files are refused

    @property
    def unnamed(self) -> str:
        """Return why such a file is skipped unless it is named, "" if it is not.

        Below folders most .json files are not records: tokenizer.json, config.json.
        """
        if self.format is None:
            return UNKNOWN_SUFFIX
        return UNNAMED_JSON if self.format == "json" else ""


ARROW = dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow")
ARROW_FORMATS = Formats(ARROW, {}, fallback="arrow", hint="name the files, or pass a glob")
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
    by_suffix={"arrow": ARROW_FORMATS},
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
    by_suffix={
        "megatron": Formats(
            {".idx": "megatron", ".bin": "megatron"},
            {},
            fallback=None,
            hint="name the .bin or the .idx file",
            reads_ids=True,
        ),
        "flat": Formats(
            {".bin": "flat", ".npy": "flat"},
            {},
            fallback="flat",
            hint="name the files, or pass a glob",
            reads_ids=True,
        ),
        "arrow": ARROW_FORMATS,
    },
    reads_ids=True,
)
FORMATS = TEXT_FORMATS.names


def find_file_format(path: str, formats: Formats = TEXT_FORMATS) -> FileFormat:
    """Find the format of a file from its name, upper or lower case.

    >>> find_file_format("a/b.TSV.gz")
    FileFormat(format='csv', compression='gzip', delimiter='\\t', refused=None)
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
    delimiter = "\t" if suffix == ".tsv" else ","
    refused = suffix if suffix in formats.refused else None
    return FileFormat(formats.of_suffix.get(suffix), compression, delimiter, refused)
