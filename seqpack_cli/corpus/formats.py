"""The suffix of a file -> its format and compression.

`corpus.jsonl.zst` is JSON lines in zstd. A suffix that is known and no text is refused rather than
read as text: guessing here would tokenize compressed bytes or JSON syntax. Any other is text.
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
REFUSED_SUFFIXES = {
    ".json": "pass --format jsonl if each line is one JSON object, or --format text",
    ".tar": "unpack it into a folder, and name the folder",
    ".tgz": "unpack it into a folder, and name the folder",
    ".zip": "unpack it into a folder, and name the folder",
}


class FileFormat(NamedTuple):
    """What a file's name says of it."""

    format: str | None  # None: nobody knows the suffix
    compression: str  # or ""
    delimiter: str  # of a csv file's fields
    refused: str | None  # the suffix, if such files are not read


def find_file_format(path: str) -> FileFormat:
    """Go by the suffixes of a file's name, in any case.

    >>> find_file_format("a/b.TSV.gz")
    FileFormat(format='csv', compression='gzip', delimiter='\\t', refused=None)
    """
    name = path.rpartition(os.sep)[2].lstrip(".").lower()  # there may be 100,000
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
