"""Find the format and compression of a file from its suffixes.

`corpus.jsonl.zst` is JSON lines in zstd. Suffixes such as .zip and .json are refused: reading these
files as text would tokenize binary data or JSON syntax. Files with other suffixes are text.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

FORMATS = ("text", "jsonl", "parquet", "csv")
FORMAT_OF_SUFFIX = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
UNPACK = "unpack it into a folder and pass the folder"
REFUSED_SUFFIXES = {
    ".json": "pass --format jsonl if each line is one JSON object, or --format text",
    ".tar": UNPACK,
    ".tgz": UNPACK,
    ".zip": UNPACK,
}


class FileFormat(NamedTuple):
    """What the name of a file says about its content."""

    format: str | None  # None: unknown suffix
    compression: str  # or ""
    delimiter: str  # of a csv file's fields
    refused: str | None  # the suffix, if such files are refused


def find_file_format(path: str) -> FileFormat:
    """Find the format of a file from its name, upper or lower case.

    >>> find_file_format("a/b.TSV.gz")
    FileFormat(format='csv', compression='gzip', delimiter='\\t', refused=None)
    """
    name = path.rpartition(os.sep)[2].lstrip(".").lower()  # fast: there may be 100,000 files
    return _find_file_format(*name.rsplit(".", 2)[1:])


@functools.lru_cache(maxsize=1024)
def _find_file_format(*names: str) -> FileFormat:
    suffixes = [f".{name}" for name in names]
    compression = COMPRESSION_OF_SUFFIX.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    delimiter = "\t" if suffix == ".tsv" else ","
    refused = suffix if suffix in REFUSED_SUFFIXES else None
    return FileFormat(FORMAT_OF_SUFFIX.get(suffix), compression, delimiter, refused)
